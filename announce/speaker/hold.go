package speaker

import (
	"net/netip"
	"slices"
	"time"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/model"
)

// withdrawPause is how long routers have for what is withdrawn, before the data
// plane forgets it.
const withdrawPause = 100 * time.Millisecond

// held are addresses that were withdrawn from routers a moment ago, with until when the data
// plane is to have them still. Whatever else changes meanwhile isn't held up.
type held map[netip.Addr]time.Time

// withdrawn lists the addresses that the data plane serves and that the next table doesn't.
func withdrawn(inForce, next map[netip.Addr]announce.Served) (list []netip.Addr) {
	for a, s := range inForce {
		n := next[a]
		if slices.ContainsFunc(s.Ready, func(service string) bool { return !slices.Contains(n.Ready, service) }) {
			list = append(list, a)
		}
	}
	return list
}

// begin holds addresses that aren't held yet, and reports whether there is one.
func (h held) begin(addresses []netip.Addr, now time.Time) bool {
	began := false
	for _, a := range addresses {
		if _, ok := h[a]; !ok {
			h[a], began = now.Add(withdrawPause), true
		}
	}
	return began
}

// keepIn returns a table that still has what is held, as the table in force has it.
func (h held) keepIn(next *model.Table, inForce *announce.Tracker, now time.Time) *model.Table {
	var edit *model.Edit
	for a, until := range h {
		if !now.Before(until) {
			continue
		}
		for _, f := range inForce.Frontends(a) {
			if edit == nil {
				edit = next.Edit()
			}
			keepFrontend(edit, f, next, inForce.Table())
		}
	}
	if edit == nil {
		return next
	}
	return edit.Table()
}

// keepFrontend keeps a frontend, unless the next table has another one in its place, and
// pools of it that have lost all endpoints.
func keepFrontend(edit *model.Edit, f *model.Frontend, next, inForce *model.Table) {
	now := next.Frontend(f.Key)
	if now != nil && now.Name != f.Name {
		return
	}
	if now == nil {
		edit.SetFrontend(f)
	}
	for _, r := range f.Routes {
		pool, before := next.Pool(r.Pool), inForce.Pool(r.Pool)
		if before != nil && (pool == nil || len(pool.Backends) == 0) {
			edit.SetPool(before)
		}
	}
}

// forget ends holding what the data plane no longer serves, or serves again.
func (h held) forget(inForce, next map[netip.Addr]announce.Served) {
	if len(h) == 0 {
		return
	}
	still := map[netip.Addr]bool{}
	for _, a := range withdrawn(inForce, next) {
		still[a] = true
	}
	for a := range h {
		if !still[a] {
			delete(h, a)
		}
	}
}
