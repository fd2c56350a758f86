package conformance

import (
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// request is one line to the process in which the plane lives.
type request struct {
	Op     string // "apply", "compare", "dump", "remove", "drifted"
	Change *change
	Verify bool
}

// reply is one line back.
type reply struct {
	Err     string
	Missing bool          // the error is a kernel.MissingError
	Lacks   []kernel.Lack // in the reply to nothing, when the plane has been made
	Text    string        // "compare": how wanted and actual objects differ, "" if not; "dump": the objects
	Drifts  int           // "drifted": how often the plane said so since the last time asked
}

// change is what makes the next table from the last one, so that the plane's
// process gets tables that share as much as the compiler's do.
type change struct {
	Settings       *model.Settings
	Frontends      []*model.Frontend
	Pools          []*model.Pool
	FrontendsGone  []model.Key
	PoolsGone      []model.PoolID
	FromTheScratch bool // the last table is the empty one
}

// newChange is the change from old, which may be nil, to next.
func newChange(old, next *model.Table) *change {
	since := next.Since(old)
	c := &change{FromTheScratch: old == nil}
	if since.Settings {
		c.Settings = next.Settings
	}
	for _, f := range since.Frontends {
		if f.New == nil {
			c.FrontendsGone = append(c.FrontendsGone, f.Key())
		} else {
			c.Frontends = append(c.Frontends, f.New)
		}
	}
	for _, p := range since.Pools {
		if p.New == nil {
			c.PoolsGone = append(c.PoolsGone, p.ID())
		} else {
			c.Pools = append(c.Pools, p.New)
		}
	}
	return c
}

// apply makes the next table.
func (c *change) apply(last *model.Table) *model.Table {
	if c.FromTheScratch {
		last = model.NewTable()
	}
	e := last.Edit()
	if c.Settings != nil {
		e.SetSettings(c.Settings)
	}
	for _, k := range c.FrontendsGone {
		e.DeleteFrontend(k)
	}
	for _, id := range c.PoolsGone {
		e.DeletePool(id)
	}
	for _, p := range c.Pools {
		e.SetPool(p)
	}
	for _, f := range c.Frontends {
		e.SetFrontend(f)
	}
	return e.Table()
}
