package iptables

import (
	"time"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
)

// generationCache tells whether nobody but this plane has changed nf_tables since it last knew
// all that is there. Then comparing has nothing to find, and reading can be spared,
// which takes seconds of processor time at 10,000 Services. The legacy variant's
// tables have no such count, so they are read each time.
type generationCache struct {
	at      uint32 // nf_tables' generation then; 0 if something isn't known
	began   uint32 // its generation where an Apply began
	commits uint32 // this plane's own since
	readAt  time.Time
}

// begin notes where an Apply begins, and reports whether all is known there.
func (c *generationCache) begin(tool *iptables.Tool) (bool, error) {
	now, err := tool.Generation()
	all := now != 0 && now == c.at && time.Since(c.readAt) < kernel.ReadingPeriod
	c.at, c.began, c.commits = 0, now, 0
	return all, err
}

// end notes that all is known that was there at the beginning, perhaps because it was
// read then: so it is still, if every change since was this plane's.
func (c *generationCache) end(tool *iptables.Tool, read bool) error {
	if read {
		c.readAt = time.Now()
	}
	now, err := tool.Generation()
	if now == c.began+c.commits {
		c.at = now
	}
	return err
}
