package native

import (
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// standings are what has become of requests to a pool's endpoints. An endpoint that fails
// as the pool says is out for a while: it gets no requests. After that, it is tried by one
// request at a time, best by one that does no harm twice, which goes elsewhere if the
// endpoint fails still. An answer brings it back.
type standings struct {
	out   atomic.Int64 // endpoints that are out or tried
	mu    sync.Mutex
	known map[netip.AddrPort]*standing
}

// standing is one endpoint's.
type standing struct {
	inRow         int
	window        time.Time // when counting began
	asked, failed int       // since then
	isOut         bool
	until         time.Time
	times         int // how often it went out, without a pause as long as the last time
	back          time.Time
	tried         time.Time // when the request went to it that tries it; zero if none is on its way
}

// trialTimeout is how long one request may be the only one that tries an endpoint.
const trialTimeout = time.Minute

// least is how many of n endpoints get requests, whatever they answer.
func least(n int) int { return (n + 1) / 2 }

// serving leaves those of a pool's endpoints that aren't out. One that is to be tried now
// comes back alone, if mayTry lets the request go there: isSafe says whether it may go
// elsewhere after it.
func (s *standings) serving(pool *model.Pool, isSafe bool, mayTry func(netip.AddrPort) bool, now time.Time) (list []model.Endpoint, isTrial bool) {
	if pool.Eject == nil || s.out.Load() == 0 {
		return pool.Endpoints, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range pool.Endpoints {
		one := s.known[e.Addr]
		switch {
		case one == nil || !one.isOut:
			list = append(list, e)
		case !mayTry(e.Addr):
		case now.Sub(one.tried) > trialTimeout && now.After(one.until) && (isSafe || now.Sub(one.until) > pool.Eject.For):
			one.tried = now
			return []model.Endpoint{e}, true
		}
	}
	if len(list) < least(len(pool.Endpoints)) { // others have gone meanwhile
		return pool.Endpoints, false
	}
	return list, false
}

// judge notes what has become of a request, and for how long its endpoint goes out by it.
func (s *standings) judge(pool *model.Pool, ep netip.AddrPort, failed bool, now time.Time) (out time.Duration) {
	if pool.Eject == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.of(pool, ep)
	one.count(failed, now)
	switch {
	case one.isOut && now.Before(one.until): // it was on its way before
		return 0
	case one.isOut && !failed:
		one.isOut, one.back, one.inRow, one.asked, one.failed = false, now, 0, 0, 0
		s.out.Add(-1)
		return 0
	case one.isOut:
	case !one.isBad(pool.Eject) || s.countOut(pool)+1 > len(pool.Endpoints)-least(len(pool.Endpoints)):
		return 0
	default:
		if now.Sub(one.back) > pool.Eject.For<<min(one.times, 16) {
			one.times = 0
		}
		one.isOut = true
		s.out.Add(1)
	}
	out = min(pool.Eject.For<<min(one.times, 16), pool.Eject.Most)
	one.times++
	one.until, one.tried = now.Add(out), time.Time{}
	return out
}

// of is an endpoint's standing. Those of endpoints that have gone are forgotten.
func (s *standings) of(pool *model.Pool, ep netip.AddrPort) *standing {
	if s.known == nil {
		s.known = map[netip.AddrPort]*standing{}
	}
	if len(s.known) > 2*len(pool.Endpoints)+maxForgotten {
		for a, one := range s.known {
			if slices.ContainsFunc(pool.Endpoints, func(e model.Endpoint) bool { return e.Addr == a }) {
				continue
			}
			if delete(s.known, a); one.isOut {
				s.out.Add(-1)
			}
		}
	}
	one := s.known[ep]
	if one == nil {
		one = &standing{}
		s.known[ep] = one
	}
	return one
}

func (s *standings) countOut(pool *model.Pool) (n int) {
	for _, e := range pool.Endpoints {
		if one := s.known[e.Addr]; one != nil && one.isOut {
			n++
		}
	}
	return n
}

func (o *standing) count(failed bool, now time.Time) {
	if now.Sub(o.window) > model.EjectWindow {
		o.window, o.asked, o.failed = now, 0, 0
	}
	o.asked++
	if !failed {
		o.inRow = 0
		return
	}
	o.inRow++
	o.failed++
}

func (o *standing) isBad(e *model.Eject) bool {
	return o.inRow >= e.Errors || e.Share > 0 && o.asked >= model.EjectLeast && o.failed*100 >= e.Share*o.asked
}

// isFailure reports whether an answer, or that there is none, is the endpoint's fault. One
// of gRPC that is nothing but headers may say so in these.
func isFailure(response *http.Response, err error) bool {
	if err != nil {
		return true
	}
	switch response.StatusCode {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return response.Header.Get("Grpc-Status") == "14" // unavailable
}

// judge notes what has become of a try, and reports whether it was the endpoint's fault.
func (x *exchange) judge(ep netip.AddrPort, response *http.Response, err error) (failed bool) {
	if x.pool.Eject == nil {
		return false
	}
	failed = isFailure(response, err) && !x.body.failed.Load()
	if out := x.engine.pickers.of(x.pool.Name).judge(x.pool, ep, failed, time.Now()); out > 0 {
		x.engine.log.Warn("endpoint fails, and gets no requests for a while", "pool", x.pool.Name, "endpoint", ep, "duration", out)
	}
	return failed
}
