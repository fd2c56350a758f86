package deploy_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/netnstest"
	"github.com/fairway-net/fairway/test/wait"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/test/fakeapi"
)

// host is a network namespace in the place of a machine, with a foreign API
// server and one pod, both on its loopback, and what a kubelet keeps for a pod.
type host struct {
	t   *testing.T
	ns  *netns.NS
	api *fakeapi.Server
	url string
	ca  []byte
	dir string
}

func newHost(t *testing.T) *host {
	t.Helper()
	ns := netnstest.New(t)
	h := &host{t: t, ns: ns, api: fakeapi.NewServer(), dir: t.TempDir()}
	h.api.Token, h.api.Rules = apiToken, fakeapi.NodeProxier()
	h.network()
	err := ns.Do(func() (err error) {
		var closer func()
		if h.url, h.ca, closer, err = h.api.Listen("127.0.0.1:0"); err == nil {
			t.Cleanup(closer)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	h.pod(podAddr, "web")
	if err := os.Mkdir(filepath.Join(h.dir, "fairway"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "xtables.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// network gives the machine its address, and a route for all others.
func (h *host) network() {
	h.t.Helper()
	handle, err := h.ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		h.t.Fatal(err)
	}
	defer handle.Close()
	must := func(err error) {
		h.t.Helper()
		if err != nil {
			h.t.Fatal(err)
		}
	}
	lo, err := handle.LinkByName("lo")
	must(err)
	must(handle.LinkSetUp(lo))
	must(handle.AddrAdd(lo, &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(podAddr))}))
	must(handle.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "wire"}))
	eth, err := handle.LinkByName("eth0")
	must(err)
	address, err := netlink.ParseAddr("192.0.2.11/24")
	must(err)
	must(handle.AddrAdd(eth, address))
	must(handle.LinkSetUp(eth))
	must(handle.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: net.ParseIP("192.0.2.1")}))
}

// pod answers on port 8080 with its name and then repeats what it is told, until
// the test ends.
func (h *host) pod(address, name string) {
	h.t.Helper()
	err := h.ns.Do(func() error {
		l, err := net.Listen("tcp", net.JoinHostPort(address, "8080"))
		if err != nil {
			return err
		}
		h.t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					_, _ = io.WriteString(c, name+"\n")
					_, _ = io.Copy(c, c)
					_ = c.Close()
				}()
			}
		}()
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// connection is a client's, as a process of the machine.
type connection struct {
	net.Conn
	in *bufio.Reader
}

func (h *host) connect(address string) (c *connection, name string, err error) {
	err = h.ns.Do(func() error {
		conn, err := net.DialTimeout("tcp", address, 2*time.Second)
		if err != nil {
			return err
		}
		c = &connection{conn, bufio.NewReader(conn)}
		name, err = c.line()
		return err
	})
	if err != nil && c != nil {
		err = errors.Join(err, c.Close())
	}
	return c, name, err
}

func (c *connection) line() (string, error) {
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	text, err := c.in.ReadString('\n')
	return strings.TrimSuffix(text, "\n"), err
}

// lives tells whether the pod at the other end still answers.
func (c *connection) lives(t *testing.T, when string) {
	t.Helper()
	_, err := io.WriteString(c, when+"\n")
	var got string
	if err == nil {
		got, err = c.line()
	}
	if err != nil || got != when {
		t.Errorf("%s: the connection says %q, %v", when, got, err)
	}
}

// ask connects and returns the name of who answers.
func (h *host) ask(address string) (string, error) {
	c, name, err := h.connect(address)
	if err != nil {
		return "", err
	}
	return name, c.Close()
}

// answers waits until the Service answers with a name; "" waits until nobody
// does.
func (h *host) answers(p *process, address, want string) {
	h.t.Helper()
	var got string
	var err error
	for range wait.Tries(60 * time.Second) {
		got, err = h.ask(address)
		if err == nil && got == want || err != nil && want == "" {
			return
		}
		select {
		case <-p.ended:
			h.t.Fatalf("the agent ended: %v\n%s", p.err, p.log)
		default:
		}
	}
	h.t.Fatalf("%s answers %q, %v; want %q\n%s", address, got, err, want, p.log)
}

// listing shows what a mode has in the kernel, by a command that prints marks
// then.
type listing struct {
	command []string
	marks   string
}

// lists waits until the kernel holds something, or doesn't any more.
func (h *host) lists(l listing, want bool) {
	h.t.Helper()
	var out []byte
	var err error
	for range wait.Tries(60 * time.Second) {
		err = h.ns.Do(func() (err error) {
			out, err = exec.Command(l.command[0], l.command[1:]...).CombinedOutput()
			return err
		})
		if err == nil && bytes.Contains(out, []byte(l.marks)) == want {
			return
		}
	}
	h.t.Fatalf("%v: %v; %q is there: want %t\n%s", l.command, err, l.marks, want, out)
}

// mountBPF mounts the file system in which eBPF programs outlive an agent.
func (h *host) mountBPF() {
	h.t.Helper()
	bpf := filepath.Join(h.dir, "bpf")
	if err := os.Mkdir(bpf, 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := unix.Mount("bpf", bpf, "bpf", 0, "mode=0700"); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { // and all programs with it
		if err := unix.Unmount(bpf, unix.MNT_DETACH); err != nil {
			h.t.Error(err)
		}
	})
}

// healthy waits until the agent tells load balancers that it is well.
func (h *host) healthy(p *process) {
	h.t.Helper()
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = h.ns.Do(func() (err error) { conn, err = new(net.Dialer).DialContext(ctx, network, address); return err })
		return conn, err
	}
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	var status string
	for range wait.Tries(60 * time.Second) {
		resp, err := client.Get("http://127.0.0.1:10256/healthz")
		if err != nil {
			h.t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			h.t.Error(err)
		}
		if status = resp.Status; resp.StatusCode == http.StatusOK {
			return
		}
	}
	h.t.Errorf("/healthz answers %s\n%s", status, p.log)
}
