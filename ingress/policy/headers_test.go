package policy

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// TestClean: what doesn't pass, also by the expressions that other engines have.
func TestClean(t *testing.T) {
	clients, proxies := Dropped()
	clients, proxies = strings.ReplaceAll(clients, "(?=.*[_.])", ""), strings.ReplaceAll(proxies, "(?=.*[_.])", "") // which Go has not
	for name, want := range map[string]struct{ clients, proxies bool }{
		"X-Real-Ip": {true, false}, "X-Forwarded-For": {true, false}, "X-Forwarded-Prefix": {true, false}, "X-Original-Url": {true, false}, "Forwarded": {true, false},
		"X_forwarded_for": {true, true}, "X.real.ip": {true, true}, "X-Forwarded_port": {true, true}, "Proxy_authorization": {true, true}, "Transfer_encoding": {true, true},
		"Http2-Settings": {true, true}, "Keep-Alive": {true, true},
		"Accept": {}, "X-Other": {}, "Under_score": {}, "Cookie": {}, "X-Forward": {},
	} {
		for _, trusted := range []bool{false, true} {
			h := http.Header{name: {"x"}}
			Clean(h, trusted)
			wanted, expression := want.clients, clients
			if trusted {
				wanted, expression = want.proxies, proxies
			}
			if dropped := len(h) == 0; dropped != wanted {
				t.Errorf("%s of a proxy %v: dropped %v", name, trusted, dropped)
			}
			if strings.ContainsAny(name, "_.") || !trusted { // the rest is told apart by what Go hasn't
				if matches := regexp.MustCompile(expression).MatchString(strings.ToLower(name)); matches != wanted {
					t.Errorf("%s of a proxy %v: the expression says %v", name, trusted, matches)
				}
			}
		}
	}
	h := http.Header{"Connection": {"close, X-Hop"}, "X-Hop": {"1"}, "Host": {"h"}}
	if Clean(h, false); len(h) != 0 {
		t.Errorf("left: %v", h)
	}
}

// TestWritten: headers that rules may not write.
func TestWritten(t *testing.T) {
	for name, want := range map[string]bool{"content-length": true, "TRANSFER-ENCODING": true, "Upgrade": true, "Te": true, "Host": false, "Date": false, "X-A": false} {
		if got := Written(name) != ""; got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
