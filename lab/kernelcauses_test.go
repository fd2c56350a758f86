package lab_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/moby/ipvs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/internal/netns"
)

// kernelCauses are those of a node's kernel: objects that somebody takes away, and a
// connection table without room.
func kernelCauses(t *testing.T, d doctored, client kubernetes.Interface, mode string, node1 *netns.NS) {
	t.Helper()
	s, err := client.CoreV1().Services("default").Get(t.Context(), "healthy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range s.Spec.ClusterIPs {
		take := taker(mode, node1, netip.MustParseAddr(text))
		if take == nil {
			break // a mode whose objects are its process's own
		}
		end := again(take)
		d.finds("FW122", "svc/healthy --node node1")
		eventually(t, "explain says that the kernel differs", func() bool {
			out, _, code := fairway("explain", "svc/healthy", "--node", "node1", "--kubeconfig", d.kubeconfig)
			return code == 2 && strings.Contains(out, "BUT THE KERNEL of node1") && strings.Contains(out, "missing") && strings.Contains(out, text)
		})
		end()
		d.finds("", "svc/healthy --node node1") // the agent has repaired it
	}
	if mode != "ipvs" && filled(t, node1) { // the virtual machine is slow
		d.finds("FW126", "svc/healthy --node node1")
		run(t, node1, "conntrack -F")
	}
	d.finds("", "svc/healthy --node node1")
}

// again does something ten times a second, as a program does that fights with the agent,
// until it is ended.
func again(do func()) (end func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			do()
			select {
			case <-over:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// taker takes away what leads packets to an address on a node, if it is there; nil where
// nobody but the agent can.
func taker(mode string, node *netns.NS, addr netip.Addr) func() {
	family, suffix := "4", ""
	if addr.Is6() {
		family, suffix = "6", "6"
	}
	shell := func(script string) func() {
		return func() {
			c := exec.Command("sh", "-c", script)
			if node.Start(c) == nil {
				_ = c.Wait() // the agent may not have put it back yet
			}
		}
	}
	switch mode {
	case "nftables":
		return shell(fmt.Sprintf("nft delete element inet fairway from-pod%s '{ %s . tcp . 80 }'", family, addr))
	case "iptables":
		return shell(fmt.Sprintf("ip%[1]stables-save -t nat | grep -- '-A KUBE-SERVICES -d %[2]s/' | sed s/^-A/-D/ | while read -r rule; do eval ip%[1]stables -t nat $rule; done", suffix, addr))
	case "ipvs":
		return func() { _ = node.Do(func() error { return takeVirtualServers(addr) }) }
	case "ebpf":
		return func() { takeFrontends(addr) }
	}
	return nil
}

// takeVirtualServers removes an address from IPVS.
func takeVirtualServers(addr netip.Addr) error {
	h, err := ipvs.New("")
	if err != nil {
		return err
	}
	defer h.Close()
	list, err := h.GetServices()
	for _, s := range list {
		if a, ok := netip.AddrFromSlice(s.Address); ok && a.Unmap() == addr {
			err = errors.Join(err, h.DelService(s))
		}
	}
	return err
}

// takeFrontends removes an address from the maps of ebpf mode, of all nodes. Those of
// frontends are each in an array of one, in which it is replaced when it grows.
func takeFrontends(addr netip.Addr) {
	arrays, _ := filepath.Glob("/sys/fs/bpf/fairway/*/v1/frontends")
	for _, path := range arrays {
		array, err := ebpf.LoadPinnedMap(path, nil)
		if err != nil {
			continue // its lab has just gone
		}
		var id uint32
		if err := array.Lookup(uint32(0), &id); err == nil {
			takeFrom(ebpf.MapID(id), addr)
		}
		_ = array.Close()
	}
}

func takeFrom(id ebpf.MapID, addr netip.Addr) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return // it was replaced
	}
	defer m.Close() //nolint:errcheck // of a test
	var found [][]byte
	var key, value []byte
	for entries := m.Iterate(); entries.Next(&key, &value); {
		if bytes.Contains(key, addr.AsSlice()) {
			found = append(found, bytes.Clone(key))
		}
	}
	for _, key := range found {
		_ = m.Delete(key) // the agent may be about to put it back
	}
}

// mostEntries is how large a connection table is filled.
const mostEntries = 300_000

// filled fills nine tenths of a node's connection table, whose limit is the machine's.
// It returns false where that limit is too high for a test.
func filled(t *testing.T, node *netns.NS) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		t.Fatal(err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if most > mostEntries {
		t.Logf("a connection table of %d entries isn't filled", most)
		return false
	}
	var lines bytes.Buffer
	for i := range most * 93 / 100 {
		client, port := fmt.Sprintf("198.18.%d.1", i/60000), 1024+i%60000
		fmt.Fprintf(&lines, "-A -p tcp -s %[1]s -d 198.19.0.1 --sport %[2]d --dport 80 --timeout 600 --state ESTABLISHED -r 198.19.0.1 -q %[1]s --reply-port-src 80 --reply-port-dst %[2]d\n", client, port)
	}
	path := filepath.Join(t.TempDir(), "connections")
	if err := os.WriteFile(path, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, node, "conntrack -R "+path)
	return true
}
