package deploy_test

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	appsv1 "k8s.io/api/apps/v1"
)

// TestCleanup runs the pod that the way back has on a node: it leaves what Fairway
// made in force until kube-proxy serves all Services, then removes it, and leaves
// what is kube-proxy's.
func TestCleanup(t *testing.T) {
	objects := build(t, "kubeadm-back")
	pod := &find[appsv1.DaemonSet](objects, "fairway").Spec.Template.Spec
	cleanup := &find[appsv1.DaemonSet](objects, "fairway-cleanup").Spec.Template.Spec
	h := newHost(t)
	h.serve(recording)
	if err := os.Mkdir(filepath.Join(h.dir, "bpf"), 0o700); err != nil {
		t.Fatal(err)
	}
	environ := h.configure("nftables", false)
	address := netip.AddrPortFrom(netip.MustParseAddr(shopAddr), 80).String()
	h.run(pod, &pod.InitContainers[0], environ...).wait()
	agent := h.run(pod, &pod.Containers[0], environ...)
	h.answers(agent, address, "web")

	// While Fairway is still there, it isn't taken for kube-proxy.
	cleaner := h.run(cleanup, &cleanup.InitContainers[0], environ...)
	waits := func(reason string) {
		t.Helper()
		for late := range wait.Tries(60 * time.Second) {
			if strings.Contains(cleaner.log.String(), reason) {
				break
			}
			if late {
				t.Fatalf("doesn't say that %s:\n%s", reason, cleaner.log)
			}
		}
	}
	waits("it is Fairway that answers")
	agent.kill()
	waits("connection refused")

	var synced atomic.Int64
	h.kubeProxy("iptables", &synced)
	waits("it hasn't written the rules of each IP family yet")
	fairway := listing{[]string{"nft", "list", "ruleset"}, "table inet fairway"}
	h.lists(fairway, true)
	if got, err := h.ask(address); got != "web" {
		t.Errorf("before kube-proxy serves: %q, %v", got, err)
	}
	err := h.ns.Do(func() error { // what a kube-proxy makes before it says so
		return exec.Command("iptables-nft", "-t", "nat", "-N", "KUBE-SERVICES").Run()
	})
	if err != nil {
		t.Fatal(err)
	}
	synced.Store(time.Now().Unix())
	cleaner.wait()
	h.lists(fairway, false)
	h.lists(listing{[]string{"iptables-nft-save", "-t", "nat"}, "KUBE-SERVICES"}, true)
	for _, line := range []string{"nftables: removed ", "iptables: left for kube-proxy", "ipvs: ", "userspace: clean"} {
		if !strings.Contains(cleaner.log.String(), line) {
			t.Errorf("%q isn't said:\n%s", line, cleaner.log)
		}
	}
}

// kubeProxy shows what kube-proxy shows at its metrics address.
func (h *host) kubeProxy(mode string, synced *atomic.Int64) {
	h.t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, mode) })
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		if at := synced.Load(); at > 0 {
			fmt.Fprintf(w, "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv4\"} %d\n", at)
		}
	})
	err := h.ns.Do(func() error {
		l, err := net.Listen("tcp", "127.0.0.1:10249")
		if err != nil {
			return err
		}
		server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
		h.t.Cleanup(func() { _ = server.Close() })
		go func() { _ = server.Serve(l) }()
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}
