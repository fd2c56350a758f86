//go:build !race

package l2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	ebpflink "github.com/cilium/ebpf/link"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/announce/core"
	"github.com/fairway-net/fairway/announce/link"
)

// TestReplay: a machine without the key sends what it has heard of the owner once more, from its
// own MAC and from the owner's. The other node takes over all the same when the owner is gone, and
// nobody asks the machine anything.
func TestReplay(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.firstAlone()
	eth, conn := l.listenToAdverts()
	owner := l.macOf("a")
	var heard [][]byte
	for range 10 {
		original := l.read(conn, func(frame []byte) bool { return bytes.Equal(frame[6:12], owner) })
		own := bytes.Clone(original)
		copy(own[6:12], eth.HardwareAddr)
		heard = append(heard, original, own)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick, i := time.NewTicker(time.Millisecond), 0; ; i++ {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				_, _ = conn.WriteTo(heard[i%len(heard)], &packet.Addr{HardwareAddr: advertGroup})
			}
		}
	}()
	l.stays("a", "adverts are sent once more", 5*core.Interval)
	l.cutPower("a")
	l.expectOwners("b")
	close(stop)
	<-done
	l.must(conn.SetReadDeadline(time.Now().Add(core.Interval)))
	for buffer := make([]byte, 2048); ; {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil {
			break
		}
		if q := newQuestions(); q.Is(buffer[:n]) && bytes.Equal(buffer[:6], eth.HardwareAddr) {
			t.Fatal("the machine that repeats adverts is asked whether it lives")
		}
	}
}

// TestFlood: rubbish and adverts that nobody signed, as many as the link takes, from changing
// MACs: the nodes' memory stays, and an owner that is lost is replaced as ever.
func TestFlood(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.firstAlone()
	_, conn := l.listenToAdverts()
	unsigned, err := core.Format.Marshal((&core.Advert{Node: "c", Incarnation: 1 << 62, Sequence: 1, Entries: []core.Entry{{Address: vip, Owner: true, Candidate: true, Epoch: 1 << 30}}}).Message(make(net.HardwareAddr, 6)), link.NewKeys([]byte("another")))
	l.must(err)
	rubbish := append(bytes.Clone(core.Format.Magic[:]), bytes.Repeat([]byte{0xff}, 1200)...)
	before := l.memory("b")
	flood := func(frames int) {
		for i := range frames {
			source := net.HardwareAddr{2, 0xbb, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
			for _, body := range [][]byte{unsigned, rubbish} {
				_, _ = conn.WriteTo(append(link.Ethernet(advertGroup, source, EtherType), body...), &packet.Addr{HardwareAddr: advertGroup})
			}
		}
	}
	flood(100_000)
	const grown = 16 << 10 // kB
	if after := l.memory("b"); after > before+grown {
		t.Errorf("a node has %d kB, and had %d before 200,000 frames", after, before)
	}
	l.expectOwners("a")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				flood(100)
			}
		}
	}()
	l.stays("a", "the flood goes on", 5*core.Interval)
	l.cutPower("a")
	l.expectOwners("b")
	close(stop)
	<-done
}

// listenToAdverts has the client hear what nodes say.
func (l *lan) listenToAdverts() (eth *net.Interface, conn *packet.Conn) {
	l.Helper()
	l.must(l.hosts["client"].Do(func() (err error) {
		if eth, err = net.InterfaceByName("eth0"); err != nil {
			return err
		}
		if conn, err = packet.Listen(eth, packet.Raw, EtherType, nil); err != nil {
			return err
		}
		return conn.SetPromiscuous(true)
	}))
	l.Cleanup(func() { conn.Close() })
	return eth, conn
}

func (l *lan) read(conn *packet.Conn, is func(frame []byte) bool) []byte {
	l.Helper()
	l.must(conn.SetReadDeadline(time.Now().Add(10 * time.Second)))
	return l.readUntil(conn, is)
}

// readUntil returns the first frame that is as wanted, before the connection's deadline.
func (l *lan) readUntil(conn *packet.Conn, is func(frame []byte) bool) []byte {
	l.Helper()
	for buffer := make([]byte, 2048); ; {
		n, _, err := conn.ReadFrom(buffer)
		l.must(err)
		if is(buffer[:n]) {
			return bytes.Clone(buffer[:n])
		}
	}
}

// memory is what a node's process holds, in kB.
func (l *lan) memory(name string) (kB int) {
	l.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.nodes[name].Process.Pid))
	l.must(err)
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kB); err == nil {
			return kB
		}
	}
	l.Fatal("the process has no memory")
	return 0
}

// TestLateDuplicate: a machine that turns up with an address that a node answers for is named,
// and told that the address is taken. The node goes on.
func TestLateDuplicate(t *testing.T) {
	l := newLAN(t)
	a := l.announceAt("a", vip, vip6)
	l.await(func() (bool, string) { // the link is asked to the end
		confirmed := 0
		for _, status := range a.Status() {
			if status.Confirmed {
				confirmed++
			}
		}
		return confirmed == 2, fmt.Sprintf("%d addresses are confirmed", confirmed)
	})
	var conn *packet.Conn
	l.must(l.hosts["b"].Do(func() error {
		eth, err := net.InterfaceByName("eth0")
		if err == nil {
			conn, err = packet.Listen(eth, packet.Raw, etherARP, nil)
		}
		return err
	}))
	defer conn.Close()
	l.await(func() (bool, string) {
		for _, frame := range append(gratuitousARP(vip, l.macOf("b")), unsolicitedNA(vip6, l.macOf("b"))) {
			_, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
			l.must(err)
		}
		status := a.Status()
		named := len(status) == 2
		for _, s := range status {
			named = named && l.macs[s.Conflict] == "b" && !s.Since.IsZero()
		}
		return named, fmt.Sprintf("%+v", status)
	})
	heard := l.read(conn, func(frame []byte) bool {
		m, ok := parseARP(frame)
		return ok && m.Sender == vip && bytes.Equal(m.SenderMAC, l.macOf("a")) && bytes.Equal(frame[:6], broadcast)
	})
	if heard == nil {
		t.Error("it isn't told that the address is taken")
	}
}

// TestTakenBefore: a node whose frames another program takes before the one that answers says no
// longer that its kernel answers.
func TestTakenBefore(t *testing.T) {
	l := newLAN(t)
	for _, name := range []string{"a", "b"} {
		l.start(name)
	}
	_, conn := l.listenToAdverts()
	says := func(want bool) {
		t.Helper()
		l.read(conn, func(frame []byte) bool {
			m, err := core.Format.Unmarshal(frame[etherHead:], link.NewKeys([]byte("key")))
			return err == nil && m.Node == "a" && core.ReadAdvert(m).Answers == want
		})
	}
	says(true)
	l.must(l.hosts["a"].Do(func() error {
		eth, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		accepts, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
		if err != nil {
			return err
		}
		defer accepts.Close()
		err = ebpflink.RawAttachProgram(ebpflink.RawAttachProgramOptions{Target: eth.Index, Program: accepts, Attach: ebpf.AttachTCXIngress, Anchor: ebpflink.Head()})
		if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
			t.Skip("the kernel has no tcx")
		}
		return err
	}))
	says(false)
}

// TestPriorityTag: a question with a priority only (802.1p, VLAN 0) is the interface's own, and is
// answered by the kernel while no agent runs. One of a VLAN isn't.
func TestPriorityTag(t *testing.T) {
	l := newLAN(t)
	l.start("a")
	l.expectOwners("a")
	l.end("a", syscall.SIGKILL)
	var eth *net.Interface
	var in, out *packet.Conn
	l.must(l.hosts["client"].Do(func() (err error) {
		if eth, err = net.InterfaceByName("eth0"); err != nil {
			return err
		}
		if in, err = packet.Listen(eth, packet.Raw, unix.ETH_P_ALL, nil); err != nil {
			return err
		}
		out, err = packet.Listen(eth, packet.Raw, unix.ETH_P_8021Q, nil)
		return err
	}))
	defer in.Close()
	defer out.Close()
	ask := func(tag uint16, last byte) {
		question := arpMessage{
			Operation: arpRequest, SenderMAC: eth.HardwareAddr, Sender: netip.AddrFrom4([4]byte{192, 0, 2, last}), TargetMAC: make(net.HardwareAddr, 6), Target: vip,
		}
		frame := question.frame(broadcast)
		tagged := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(bytes.Clone(frame[:12]), unix.ETH_P_8021Q), tag)
		_, err := out.WriteTo(append(tagged, frame[12:]...), &packet.Addr{HardwareAddr: broadcast})
		l.must(err)
	}
	const priority, vlan = 5 << 13, 5
	ask(priority|vlan, 231)
	ask(priority, 232)
	l.read(in, func(frame []byte) bool {
		if binary.BigEndian.Uint16(frame[12:]) == unix.ETH_P_8021Q {
			frame = append(bytes.Clone(frame[:12]), frame[16:]...)
		}
		m, ok := parseARP(frame)
		if !ok || m.Operation != arpReply || m.Sender != vip {
			return false
		}
		if m.Target.As4()[3] == 231 {
			t.Error("a question of a VLAN is answered")
		}
		return m.Target.As4()[3] == 232
	})
}

// TestLockedOut: a node that doesn't get the cluster's next key loses its addresses to one that
// has it, whatever its agent and its kernel say, and clients are told.
func TestLockedOut(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.firstAlone()
	_, adverts := l.listenToAdverts()
	l.must(l.nodes["b"].Process.Signal(forgetsKey))
	l.must(adverts.SetReadDeadline(time.Now().Add(30 * time.Second)))
	l.readUntil(adverts, func(frame []byte) bool {
		m, err := core.Format.Unmarshal(frame[etherHead:], link.NewKeys([]byte(nextKey)))
		return err == nil && m.Node == "b" && slices.ContainsFunc(m.Entries, func(e core.Entry) bool { return e.Address == vip && e.Owner })
	})
	for _, a := range []netip.Addr{vip, vip6} {
		wait.Until(l, 20*time.Second, "the client sends packets for "+a.String()+" to the node that has the key", func() bool {
			l.touch(a)
			return l.macs[l.neighbor(a).HardwareAddr.String()] == "b"
		})
	}
	// It is told again, since the other one goes on to answer.
	var conn *packet.Conn
	l.must(l.hosts["client"].Do(func() error {
		eth, err := net.InterfaceByName("eth0")
		if err == nil {
			conn, err = packet.Listen(eth, packet.Raw, etherARP, nil)
		}
		return err
	}))
	defer conn.Close()
	l.must(conn.SetReadDeadline(time.Now().Add(30 * time.Second)))
	l.readUntil(conn, func(frame []byte) bool {
		m, ok := parseARP(frame)
		return ok && m.Operation == arpRequest && m.Sender.IsUnspecified() && m.Target == vip && bytes.Equal(m.SenderMAC, l.macOf("b"))
	})
	l.readUntil(conn, func(frame []byte) bool {
		m, ok := parseARP(frame)
		return ok && m.Sender == vip && bytes.Equal(m.SenderMAC, l.macOf("b")) && bytes.Equal(frame[:6], broadcast)
	})
}

// TestDeletedNode: a node that the cluster says is out loses its addresses at once, although its
// agent goes on and signs with a key that is good.
func TestDeletedNode(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.firstAlone()
	l.must(l.nodes["b"].Process.Signal(expels))
	l.expectOwners("b")
	l.stays("b", "the node that is out goes on", 2*core.DeadAfter)
}
