package agent

import "github.com/fairway-net/fairway/model"

// Names and forwarding go together: a new address is named once the table that
// forwards it is in force.

// tabled notes that the loop took a table, which may be in force already.
func (n *names) tabled(table *model.Table, mark uint64) {
	if n.index == nil || table == nil {
		return
	}
	n.mark = mark
	if table == n.inForce {
		n.applied(table)
	}
}

// applied notes that the table last taken is in force.
func (n *names) applied(table *model.Table) {
	if n.index == nil {
		return
	}
	n.inForce = table
	n.index.Applied(n.mark)
}
