package nftables

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
)

// leaveKubeProxy makes tables like those of kube-proxy in nftables mode.
func leaveKubeProxy(t *testing.T) {
	t.Helper()
	for _, family := range []string{"ip", "ip6"} {
		for _, line := range []string{
			"add table F kube-proxy",
			"add chain F kube-proxy services",
			"add chain F kube-proxy nat-prerouting { type nat hook prerouting priority dstnat ; }",
			"add chain F kube-proxy nat-output { type nat hook output priority -100 ; }",
			"add chain F kube-proxy nat-postrouting { type nat hook postrouting priority srcnat ; }",
			"add rule F kube-proxy nat-prerouting jump services",
			"add rule F kube-proxy nat-output jump services",
		} {
			nft(t, strings.Fields(strings.ReplaceAll(line, " F ", " "+family+" "))...)
		}
	}
}

// TestKubeProxyGoes: its tables are removed once this mode is complete, again if
// they come back, and when the mode is removed itself, unless they shall stay.
func TestKubeProxyGoes(t *testing.T) {
	inNamespace(t)
	nft(t, "add", "table", "ip", "kube-proxy-of-others")
	there := func() bool { return strings.Contains(nft(t, "list", "tables"), "kube-proxy\n") }
	p := newPlane(t, kernel.Options{})
	table := everything()
	for _, verify := range []bool{false, true} {
		leaveKubeProxy(t)
		apply(t, p, table, verify)
		if there() {
			t.Errorf("applied with verify %v, kube-proxy's tables are still there", verify)
		}
		checkObjects(t, p, table)
	}
	for _, keep := range []bool{true, false} {
		leaveKubeProxy(t)
		if err := newPlane(t, kernel.Options{KeepKubeProxy: keep}).Remove(context.Background(), kernel.EndConnections); err != nil {
			t.Fatal(err)
		}
		if there() != keep {
			t.Errorf("removed with KeepKubeProxy %v: kube-proxy's tables are there: %v", keep, !keep)
		}
	}
	if !strings.Contains(nft(t, "list", "tables"), "kube-proxy-of-others") {
		t.Error("a table of others has been removed")
	}
}

// TestKubeProxyGoesUnnoticed has connections made to an address that kube-proxy translates
// and refuses if it hasn't, and that is served without it as well, while its tables go.
func TestKubeProxyGoesUnnoticed(t *testing.T) {
	inNamespace(t)
	const service, backend = "192.0.2.10:80", "127.0.0.1:8080"
	for _, line := range []string{"link set lo up", "address add 192.0.2.10/32 dev lo"} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	here, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	for _, address := range []string{service, backend} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go answer(l)
	}
	p := newPlane(t, kernel.Options{})
	apply(t, p, everything(), false)

	done, stop := context.WithCancel(context.Background())
	var connecting sync.WaitGroup
	var coming sync.RWMutex // a packet that meets half of them while they come is refused
	defer connecting.Wait()
	defer stop()
	for range 4 {
		connecting.Go(func() {
			err := here.Do(func() error {
				for done.Err() == nil {
					coming.RLock()
					conn, err := net.DialTimeout("tcp", service, 30*time.Second)
					coming.RUnlock()
					if err == nil {
						err = errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close())
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
				stop()
			}
		})
	}
	file := filepath.Join(t.TempDir(), "kube-proxy.nft")
	if err := os.WriteFile(file, []byte(refusingKubeProxy), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		coming.Lock()
		nft(t, "-f", file)
		coming.Unlock()
		if err := p.socket.removeTable(unix.NFPROTO_IPV4, kubeProxyTable); err != nil {
			t.Fatal(err)
		}
		if done.Err() != nil {
			return
		}
	}
}

// refusingKubeProxy is what kube-proxy's tables do with a Service, and with what comes to
// it and hasn't been translated.
const refusingKubeProxy = `table ip kube-proxy {
	chain nat-output {
		type nat hook output priority -100
		ip daddr 192.0.2.10 tcp dport 80 dnat to 127.0.0.1:8080
	}
	chain filter-output-post-dnat {
		type filter hook output priority -90
		ip daddr 192.0.2.10 ct state new reject
	}
	chain filter-input {
		type filter hook input priority -110
		ip daddr 192.0.2.10 ct state new reject
	}
}
`

// answer accepts connections until the listener is closed.
func answer(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if conn.Close() != nil {
			return
		}
	}
}
