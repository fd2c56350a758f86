package model

import (
	"net/http"
)

// Decision is what becomes of a request.
type Decision struct {
	Socket   *Socket
	Listener *Listener // nil if none takes it
	Host     *Host
	Rule     *Rule // nil if none matches
	// Status is the answer that the gateway gives itself; 0 if a backend answers.
	Status   int
	Location string // of a redirect
	Reason   string // why the gateway answers itself, for people
}

// Listener returns the one that takes connections for a server name or host;
// nil if none does.
func (s *Socket) Listener(name string) *Listener {
	if s.byHostname != nil {
		return s.indexed(name)
	}
	for _, l := range s.Listeners {
		if s.covers(l.Hostname, name) {
			return l
		}
	}
	return nil
}

// Decide says what becomes of a request that came in at a socket.
func (s *Socket) Decide(r *Request) Decision {
	d := Decision{Socket: s, Listener: s.Listener(r.Host)}
	if s.TLS {
		// A connection belongs to the listener of its server name. A client that
		// reuses it for a host of another one is told to make its own (RFC 9110, 15.5.20).
		own := s.Listener(r.ServerName)
		if own == nil || own != d.Listener {
			d.Status, d.Reason = http.StatusMisdirectedRequest, "the host belongs to another listener than the TLS server name"
			return d
		}
	}
	if d.Listener == nil {
		d.Status, d.Reason = http.StatusNotFound, "no listener has the host"
		return d
	}
	d.find(r)
	if r.Other != "" && !d.isCertain(r) {
		d.Rule, d.Status, d.Reason = nil, http.StatusBadRequest, "the path has an escaped slash, and with a slash there it would meet another rule"
		return d
	}
	if d.Rule != nil {
		d.answer(r)
	}
	return d
}

// find looks for the first rule that matches.
func (d *Decision) find(r *Request) {
	d.Status, d.Reason = http.StatusNotFound, "no route of the listener has the host"
	d.Listener.hosts.each(r.Host, d.Socket.OneLabel, func(h *Host) bool {
		d.Reason = "no rule matches"
		for _, rule := range h.Rules {
			if rule.Match.Matches(r) {
				d.Host, d.Rule, d.Status, d.Reason = h, rule, 0, ""
				return true
			}
		}
		return false
	})
}

// isCertain reports whether the other reading of a request's path leads to the same.
func (d *Decision) isCertain(r *Request) bool {
	read := *r
	read.Path = r.Other
	other := Decision{Socket: d.Socket, Listener: d.Listener}
	other.find(&read)
	if d.Rule == nil || other.Rule == nil {
		return d.Rule == other.Rule
	}
	return d.Rule.doesAs(other.Rule)
}

// answer fills in what the gateway answers itself, if anything.
func (d *Decision) answer(r *Request) {
	a := d.Rule.Action
	switch {
	case a.RequireHTTPS != 0 && r.scheme() != "https":
		redirect := Redirect{Scheme: "https", Status: a.RequireHTTPS}
		d.Status, d.Location, d.Reason = redirect.Status, redirect.Location(r, &d.Rule.Match, d.Socket.Port), "requests must come by https"
	case a.Invalid != "":
		d.Status, d.Reason = http.StatusInternalServerError, a.Invalid
	case a.Answer != 0:
		d.Status, d.Reason = a.Answer, "the rule answers itself"
	case a.Redirect != nil:
		d.Status, d.Location, d.Reason = a.Redirect.Status, a.Redirect.Location(r, &d.Rule.Match, d.Socket.Port), "redirect"
	case a.Unroutable || a.total() == 0:
		d.Status, d.Reason = http.StatusInternalServerError, "the rule names no backend that gets requests"
	}
}

func (a *Action) total() int {
	sum := 0
	for i := range a.Backends {
		sum += a.Backends[i].Weight
	}
	return sum
}

// Choose returns the backend for a number that is drawn at random, each as often
// as its weight says. There must be one of a weight.
func (a *Action) Choose(draw uint64) *Backend {
	n := int(draw % uint64(a.total()))
	for i := range a.Backends {
		b := &a.Backends[i]
		if n < b.Weight {
			return b
		}
		n -= b.Weight
	}
	return nil // not reached
}
