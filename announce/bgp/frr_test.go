//go:build !race

package bgp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/announce/bfd"
	"github.com/fairway-net/fairway/internal/netns"
)

// nodeVariable has this test program announce, as a node does, to the peers that it names.
const nodeVariable = "FAIRWAY_TEST_BGP_NODE"

func TestMain(m *testing.M) {
	if peers := os.Getenv(nodeVariable); peers != "" {
		os.Exit(announceTo(peers))
	}
	os.Exit(m.Run())
}

const frrPassword = "s3cret"

// startFRR runs FRR in a router, which answers sessions of neighbors. Lines are about each of
// these, where %s stands for its address.
func startFRR(t *testing.T, router *netns.NS, asn int, neighbors []string, lines ...string) {
	t.Helper()
	dir := t.TempDir()
	lines = append([]string{"remote-as 64512", "passive", "password " + frrPassword, "bfd 20 100 100"}, lines...)
	config := fmt.Sprintf("log stdout\nrouter bgp %d\n bgp router-id 192.0.2.1\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n", asn)
	for _, n := range neighbors {
		for _, line := range lines {
			config += fmt.Sprintf(" neighbor %s %s\n", n, line)
		}
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		config += " address-family " + family + " unicast\n"
		for _, n := range neighbors {
			config += "  neighbor " + n + " activate\n"
		}
		config += " exit-address-family\n"
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	must(t, errors.Join(
		os.WriteFile(file("group"), []byte("root:x:0:\nfrrvty:x:1:root\n"), 0o644),
		os.WriteFile(file("passwd"), []byte("root:x:0:0::/:/bin/sh\n"), 0o644),
		os.WriteFile(file("frr.conf"), []byte(config), 0o644),
	))
	libraries, err := filepath.Glob("/usr/lib/*/frr") // the virtual machine has no ld.so.cache
	must(t, err)
	for _, name := range []string{"zebra", "bfdd", "bgpd"} {
		args := []string{"-u", "root", "-g", "root", "-f", file("frr.conf"), "-z", file("zserv"), "--vty_socket", dir, "-i", file(name + ".pid"), "-P", "0"}
		if name == "bfdd" {
			args = append(args, "--bfdctl", file("bfdd.sock"))
		}
		cmd := exec.Command("/usr/lib/frr/"+name, args...)
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
		must(t, router.StartWith(cmd, map[string]string{"/etc/group": file("group"), "/etc/passwd": file("passwd")}))
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		await(t, name+" works", func() error {
			_, err := os.Stat(file(name + ".vty"))
			return err
		})
	}
}

// peerOfFRR is one that announceTo holds a session with.
func peerOfFRR(name string, asn uint32, address netip.Addr) announce.Peer {
	return announce.Peer{
		Name: name, LocalASN: 64512, ASN: asn, Address: address, Port: 179, Password: frrPassword, HoldTime: 9 * time.Second, Connect: time.Second,
		BFD: announce.BFD{Profile: "way", Receive: 100 * time.Millisecond, Transmit: 100 * time.Millisecond, Multiplier: 20, MinimumTTL: 254},
	}
}

// startNode has a node announce, and returns once all of its sessions are up; what it returns
// has it leave.
func startNode(t *testing.T, node *netns.NS, peers []announce.Peer) (end func()) {
	t.Helper()
	text, err := json.Marshal(peers)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), nodeVariable+"="+string(text)), t.Output()
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, node.Start(cmd))
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "up" {
		t.Fatalf("the node's sessions: %q", lines.Text())
	}
	return func() { must(t, errors.Join(in.Close(), cmd.Wait())) }
}

// announceTo is the node: it says so when all sessions are up, and leaves at the end of its
// input.
func announceTo(text string) int {
	var peers []announce.Peer
	if err := json.Unmarshal([]byte(text), &peers); err != nil {
		fmt.Println(err)
		return 1
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	s := New(func() {}, log)
	ways := bfd.New(func() {}, s.Reset, log)
	var watched []bfd.Session
	told := map[string]map[netip.Prefix]announce.Route{}
	for _, p := range peers {
		watched = append(watched, bfd.Session{Peer: p.Name, Address: p.Address, VRF: p.VRF, MultiHop: p.MultiHop, Settings: p.BFD})
		vip := vips[map[bool]int{true: 0, false: 1}[p.Address.Is4()]]
		told[p.Name] = map[netip.Prefix]announce.Route{netip.PrefixFrom(vip, vip.BitLen()): {}}
	}
	s.Routes(told)
	s.Peers(peers)
	ways.Set(watched)
	for late := range wait.Tries(2 * time.Minute) {
		down := slices.ContainsFunc(s.Status(), func(st Status) bool { return st.State != Established }) ||
			slices.ContainsFunc(ways.Status(), func(st bfd.Status) bool { return st.State != bfd.Up })
		if !down {
			break
		}
		if late {
			fmt.Printf("%+v %+v\n", s.Status(), ways.Status())
			return 1
		}
	}
	fmt.Println("up")
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.Close(context.Background(), false)
	ways.Close()
	return 0
}
