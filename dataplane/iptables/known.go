package iptables

import "github.com/fairway-net/fairway/internal/iptables"

// known tells whether nobody but this plane has changed nf_tables since it last knew
// all that is there. Then comparing has nothing to find, and reading can be spared,
// which takes seconds of processor time at 10,000 Services. The legacy variant's
// tables have no such count, so they are read each time.
type known struct {
	at      uint32 // nf_tables' generation then; 0 if something isn't known
	began   uint32 // its generation where an Apply began
	commits uint32 // this plane's own since
}

// begin notes where an Apply begins, and reports whether all is known there.
func (k *known) begin(tool *iptables.Tool) (bool, error) {
	now, err := tool.Generation()
	all := now != 0 && now == k.at
	*k = known{began: now}
	return all, err
}

// end notes that all is known that was there at the beginning, so that it is still if
// every change since was this plane's.
func (k *known) end(tool *iptables.Tool) error {
	now, err := tool.Generation()
	if now == k.began+k.commits {
		k.at = now
	}
	return err
}
