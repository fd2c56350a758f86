package cmd

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
// rules, and that it isn't Fairway who says so.
func TestWaitForKubeProxy(t *testing.T) {
	var step atomic.Int32
	metrics := []string{
		"fairway_frontends 7\n" + lastSynced + `{ip_family="IPv4"} 1.7e+09` + "\n",
		"# TYPE " + lastSynced + " gauge\nkubeproxy_proxy_healthz_total 1\n",
		lastSynced + " 0\n",
		lastSynced + `{ip_family="IPv4"} 1.7e+09` + "\n" + lastSynced + `{ip_family="IPv6"} 0` + "\n",
		lastSynced + `{ip_family="IPv4"} 1.7e+09` + "\n" + lastSynced + `{ip_family="IPv6"} 1.7e+09` + "\n",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			fmt.Fprint(w, metrics[step.Load()])
		case "/proxyMode":
			fmt.Fprint(w, "iptables")
		}
	}))
	defer server.Close()
	k := &kubeProxy{address: strings.TrimPrefix(server.URL, "http://"), config: "/nowhere"}
	for _, want := range []error{errFairwayThere, errNotSynced, errNotSynced, errNotSynced} {
		if _, err := ask(t.Context(), k.address); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", metrics[step.Load()], err, want)
		}
		step.Add(1)
	}
	if mode, err := k.wait(t.Context(), &bytes.Buffer{}); mode != "iptables" || err != nil {
		t.Errorf("mode %q, %v", mode, err)
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
