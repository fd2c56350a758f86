package userspace

import (
	"net/netip"
)

// watchRoutes says which routes are in force from now on.
func (p *Plane) watchRoutes(routes routeSet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.routes = routes
}

// watchDrift reports routes of ours that somebody deletes.
func (p *Plane) watchDrift() {
	if p.done != nil {
		return
	}
	done := make(chan struct{})
	p.done = done
	err := watchRoutes(done, func(prefix netip.Prefix) {
		p.mu.Lock()
		_, wanted := p.routes[prefix]
		p.mu.Unlock()
		// What is told may be from before the plane added it again.
		if wanted && !hasRoute(prefix) || !prefix.IsValid() {
			p.drifted(done)
		}
	})
	if err != nil {
		p.drifted(done) // the periodic comparison finds what this doesn't
	}
}

// drifted calls for a comparison, unless watching has ended.
func (p *Plane) drifted(done <-chan struct{}) {
	select {
	case <-done:
	default:
		if p.options.Drift != nil {
			p.options.Drift()
		}
	}
}
