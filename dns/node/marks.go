package node

import "github.com/fairway-net/fairway/model"

// Names and forwarding go together: a new address is named once the table that
// forwards it is in force.

// Tabled notes that the loop took a table, which may be in force already.
func (n *DNS) Tabled(table *model.Table, mark uint64) {
	if n.Index == nil || table == nil {
		return
	}
	n.mark = mark
	if table == n.inForce {
		n.Applied(table)
	}
}

// Applied notes that the table last taken is in force.
func (n *DNS) Applied(table *model.Table) {
	if n.Index == nil {
		return
	}
	n.inForce = table
	n.Index.Applied(n.mark)
}
