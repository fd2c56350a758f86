package engines

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// clientAt connects from an address of its own.
func clientAt(from string, address netip.AddrPort) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true, // so that stickiness is not the connection's
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
			return d.DialContext(ctx, network, address.String())
		},
	}}
}

// stuck asks several times and returns the endpoint that always answers.
func (r *rig) stuck(c *http.Client) string {
	r.t.Helper()
	var first string
	for i := range 5 {
		response, _ := r.get(c, "http://h/")
		got := response.Header.Get("Endpoint")
		if i == 0 {
			first = got
		}
		if got != first || got == "" {
			r.t.Fatalf("answer %d of %q after %q", response.StatusCode, got, first)
		}
	}
	return first
}

// testStickyByAddress: a client gets the same endpoint by its address, all
// endpoints have clients, and when one goes only its own clients move.
func testStickyByAddress(t *testing.T, r *rig) {
	endpoints := []*endpoint{r.endpoint("a", nil), r.endpoint("b", nil), r.endpoint("c", nil), r.endpoint("d", nil)}
	apply := func(list ...*endpoint) {
		p := pool("p", list...)
		p.Algorithm = model.Source
		r.apply(table([]*model.Rule{below("/", to("p"))}, p))
	}
	apply(endpoints...)
	const clients = 60
	before, seen := map[string]string{}, map[string]int{}
	for i := range clients {
		from := fmt.Sprintf("127.0.3.%d", i+1)
		before[from] = r.stuck(clientAt(from, r.address()))
		seen[before[from]]++
	}
	if len(seen) != len(endpoints) {
		t.Errorf("%d clients are shared as %v", clients, seen)
	}
	apply(endpoints[1:]...)
	for from, was := range before {
		if now := r.stuck(clientAt(from, r.address())); was != "a" && now != was || now == "a" {
			t.Errorf("%s had %s, and has %s without a", from, was, now)
		}
	}
	apply(endpoints...)
	for from, was := range before {
		if now := r.stuck(clientAt(from, r.address())); now != was {
			t.Errorf("%s had %s, and has %s once a is back", from, was, now)
		}
	}
}

// testStickyByCookie: a client gets the same endpoint by a cookie, which tells no
// address, and another one with another cookie when the endpoint is gone.
func testStickyByCookie(t *testing.T, r *rig) {
	a, b := r.endpoint("a", nil), r.endpoint("b", nil)
	action := to("p")
	action.Affinity = &model.Affinity{Cookie: "SERVERID"}
	apply := func(list ...*endpoint) { r.apply(table([]*model.Rule{below("/", action)}, pool("p", list...))) }
	apply(a, b)
	c := client(r.address(), http1)
	ask := func(cookie *http.Cookie) (string, *http.Cookie) {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://h/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if cookie != nil {
			q.AddCookie(cookie)
		}
		response, _, err := ask(c, q)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
		given := (&http.Response{Header: response.Header}).Cookies()
		if len(given) == 0 {
			return response.Header.Get("Endpoint"), nil
		}
		return response.Header.Get("Endpoint"), given[0]
	}
	first, cookie := ask(nil)
	if cookie == nil || cookie.Name != "SERVERID" || cookie.Value == "" || !cookie.HttpOnly {
		t.Fatalf("cookie %v", cookie)
	}
	for range 6 {
		if again, given := ask(cookie); again != first || given != nil {
			t.Errorf("answer of %s with cookie %v, of %s before", again, given, first)
		}
	}
	left := map[string]*endpoint{"a": b, "b": a}[first]
	apply(left)
	other, next := ask(cookie)
	if other == first || next == nil || next.Value == cookie.Value {
		t.Errorf("without %s, answer of %s with cookie %v", first, other, next)
	}
	if _, forged := ask(&http.Cookie{Name: "SERVERID", Value: left.addr().String()}); forged == nil {
		t.Error("an address is taken for a cookie")
	}
}

// testStickyAcross: a client that stays with an endpoint stays with its backend, by a cookie
// or by a header, unless the rule draws the backend each time.
func testStickyAcross(t *testing.T, r *rig) {
	a, b := r.endpoint("a", nil), r.endpoint("b", nil)
	bySession := func(f *model.Affinity) *model.Rule {
		action := to("p", "q")
		action.Affinity = f
		return below("/"+f.Cookie+f.Header, action)
	}
	r.apply(table([]*model.Rule{
		bySession(&model.Affinity{Cookie: "CLIENT"}), bySession(&model.Affinity{Header: "X-Client"}), bySession(&model.Affinity{Cookie: "LOOSE", Loose: true}),
	}, pool("p", a), pool("q", b)))
	c := client(r.address(), http1)
	asked := func(path, name, value string) (endpoint string, h http.Header) {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://h"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if value != "" {
			q.Header.Set(name, value)
		}
		response, _, err := ask(c, q)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
		return response.Header.Get("Endpoint"), response.Header
	}
	for _, test := range []struct {
		path, sent, told string
		stays            bool
	}{{"/CLIENT", "Cookie", "Set-Cookie", true}, {"/X-Client", "X-Client", "X-Client", true}, {"/LOOSE", "Cookie", "Set-Cookie", false}} {
		first, h := asked(test.path, "", "")
		value, _, _ := strings.Cut(h.Get(test.told), ";")
		if value == "" {
			t.Errorf("%s: no %s", test.path, test.told)
			continue
		}
		others := 0
		for range 40 {
			if again, _ := asked(test.path, test.sent, value); again != first {
				others++
			}
		}
		if (others > 0) == test.stays {
			t.Errorf("%s: %d of 40 requests went elsewhere", test.path, others)
		}
	}
}
