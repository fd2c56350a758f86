package cleanup

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestWaitForKubeProxy: what tells that kube-proxy serves is that it has written
// the rules of each IP family, and that it isn't Fairway who says so.
func TestWaitForKubeProxy(t *testing.T) {
	const at, zero = " 1.7e+09\n", " 0\n"
	const of4, of6 = `{ip_family="IPv4"}`, `{ip_family="IPv6"}`
	for _, c := range []struct {
		name, metrics string
		byFamily      bool
		want          error
	}{
		{"Fairway", "fairway_frontends 7\n" + lastSynced + of4 + at, false, errFairwayThere},
		{"from the start", "# TYPE " + lastSynced + " gauge\nkubeproxy_proxy_healthz_total 1\n", false, errNotSynced},
		{"1.28, from the start", lastQueued + at + lastSynced + zero, false, errNotSynced},
		{"1.28", lastQueued + at + lastSynced + at, false, nil},
		{"one of two", lastQueued + of4 + at + lastQueued + of6 + at + lastSynced + of4 + at, false, errNotSynced},
		{"one of two, as 0", lastSynced + of4 + at + lastSynced + of6 + zero, false, errNotSynced},
		{"both", lastQueued + of4 + at + lastQueued + of6 + at + lastSynced + of4 + at + lastSynced + of6 + at, true, nil},
		{"one of one", lastQueued + of6 + at + lastSynced + of6 + at, true, nil},
	} {
		if byFamily, err := synced(c.metrics); byFamily != c.byFamily || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v, want %v, %v", c.name, byFamily, err, c.byFamily, c.want)
		}
	}
}

// TestKubeProxyInStep: it is waited for until then, and asked for its mode.
func TestKubeProxyInStep(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			fmt.Fprintln(w, lastSynced+`{ip_family="IPv4"}`, asked.Add(1)-1)
		case "/proxyMode":
			fmt.Fprint(w, "iptables")
		}
	}))
	defer server.Close()
	k := &KubeProxy{Address: strings.TrimPrefix(server.URL, "http://"), Config: "/nowhere"}
	var said bytes.Buffer
	if mode, err := k.Wait(t.Context(), &said); mode != "iptables" || err != nil {
		t.Errorf("mode %q, %v", mode, err)
	}
	if want := "kube-proxy: waiting: " + errNotSynced.Error() + "\nkube-proxy: in step, in iptables mode\n"; said.String() != want {
		t.Errorf("said %q, want %q", said.String(), want)
	}
}

func TestLocalAddress(t *testing.T) {
	for address, want := range map[string]string{
		"0.0.0.0:10249": "127.0.0.1:10249", ":10249": "127.0.0.1:10249", "[::]:10249": "[::1]:10249",
		"127.0.0.1:1": "127.0.0.1:1", "192.0.2.1:10249": "192.0.2.1:10249", "[fd00::1]:7": "[fd00::1]:7",
	} {
		if got := local(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
