package lab

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/netnstest"
	"github.com/fairway-net/fairway/test/wait"

	"github.com/fairway-net/fairway/lab/topology"
)

func TestRelay(t *testing.T) {
	// The far side answers with what it got, when it has got all of it.
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() {
		for {
			c, err := far.Accept()
			if err != nil {
				return
			}
			data, _ := io.ReadAll(c)
			_, _ = c.Write(data)
			_ = c.Close()
		}
	}()
	ns := netnstest.New(t)
	lo, err := ns.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer lo.Close()
	link, err := lo.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := lo.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	h := &topology.Host{Name: "x", NS: ns, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}}
	r, err := newRelay(h, 6443, far.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.run(ctx) }()
	for _, address := range []string{"127.0.0.1:6443", "[::1]:6443"} {
		c, err := h.DialContext(ctx, "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
			t.Errorf("through %s: %q, %v", address, got, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestProcess(t *testing.T) {
	own, err := self()
	if err != nil {
		t.Fatal(err)
	}
	if own.PID != os.Getpid() || !own.alive() {
		t.Errorf("self: %+v", own)
	}
	if (process{own.PID, "1"}).alive() {
		t.Error("a process that started at another time is taken for this one")
	}
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := startTime(cmd.Process.Pid); err != nil {
		t.Logf("it has ended already: %v", err)
	}
	for late := range wait.Tries(30 * time.Second) {
		if _, err := startTime(cmd.Process.Pid); err != nil {
			break // a zombie counts as ended
		}
		if late {
			t.Fatal("a process that has ended is taken to be alive")
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
