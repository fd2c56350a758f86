package bench

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestGap: only datagrams that were lost make a gap, and it ends with the next one
// that is answered.
func TestGap(t *testing.T) {
	began := time.Now().Add(-time.Minute)
	for _, test := range []struct {
		answers string // of datagrams that were sent every millisecond: x lost
		gap     time.Duration
		lost    int
	}{
		{"......", 0, 0},
		{"..xxx..", 3 * time.Millisecond, 3},
		{".x..xx.", 2 * time.Millisecond, 3},
		{"xx....", 0, 2}, // before the first answer there was nothing to lose
	} {
		p := &probe{}
		for i, c := range test.answers {
			p.sent = append(p.sent, began.Add(time.Duration(i)*probeEvery))
			p.answered = append(p.answered, c == '.')
		}
		if gap, lost := p.gap(); gap != test.gap || lost != test.lost {
			t.Errorf("%s: gap %v, %d lost; want %v, %d", test.answers, gap, lost, test.gap, test.lost)
		}
	}
}

// TestFlowIsKnown: a node's frames are told apart by address, ports and protocol.
func TestFlowIsKnown(t *testing.T) {
	frame := func(to netip.Addr, from, port uint16, protocol byte) []byte {
		b := make([]byte, 14, 100)
		if to.Is4() {
			b = append(b, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 1, 2, 3, 4)
		} else {
			b = append(append(b, 0x60, 0, 0, 0, 0, 0, protocol, 64), make([]byte, 16)...)
		}
		b = append(b, to.AsSlice()...)
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, from), port)
		return append(b, 0, 0, 0, 0)
	}
	for _, text := range []string{"192.0.2.1", "2001:db8::1"} {
		a := netip.MustParseAddr(text)
		to := netip.AddrPortFrom(a, 7)
		if !isOf(frame(a, 40000, 7, 17), 40000, to) {
			t.Errorf("the flow to %s is not known", a)
		}
		for what, other := range map[string][]byte{
			"another source port": frame(a, 40001, 7, 17), "another port": frame(a, 40000, 8, 17), "TCP": frame(a, 40000, 7, 6),
			"another address": frame(a.Next(), 40000, 7, 17), "a short frame": frame(a, 40000, 7, 17)[:20], "nothing": nil,
		} {
			if isOf(other, 40000, to) {
				t.Errorf("%s is taken for the flow to %s", what, a)
			}
		}
	}
}

// TestAnnounceReport: what was measured says whether the goal is met, and stays when
// another way is measured.
func TestAnnounceReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "performance.md")
	drained := events()[1]
	write := func(version, who string, n noticed) {
		t.Helper()
		r := &announceRun{AnnounceOptions: AnnounceOptions{Out: path, Section: "announcing", Version: version, Connections: 10}}
		r.Log = slog.New(slog.DiscardHandler)
		r.note(drained, who, n.text(drained))
		if err := r.write(); err != nil {
			t.Fatal(err)
		}
	}
	none := []time.Duration{0}
	write("v1", "L2, ebpf", noticed{gaps: none, packets: []int{0}, lost: []losses{{}}, connections: 10, made: 5})
	write("v2", "L2, nftables", noticed{gaps: none, packets: []int{0}, lost: []losses{{reset: 1}}, connections: 10, made: 5})
	write("v3", "BGP", noticed{gaps: none, packets: []int{0}, lost: []losses{{}}, connections: 10, refused: 1})
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| 0 connections lost, 0 refused | L2, ebpf | BGP; L2, nftables |", "`fairway-bench announce --only drain`",
		"connections lost 1 of 10 (1 reset, 0 silent)", "new ones refused 1, unanswered 0 of 1 | v3",
	} {
		if bytes.Count(data, []byte(want)) != 1 {
			t.Errorf("%q is there %d times in\n%s", want, bytes.Count(data, []byte(want)), data)
		}
	}
}

func TestAnnounceOptions(t *testing.T) {
	good := AnnounceOptions{Connections: 1, Repetitions: 1, Addresses: 1}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*AnnounceOptions){
		"--way":         func(o *AnnounceOptions) { o.Ways = []string{"rip"} },
		"--only":        func(o *AnnounceOptions) { o.Only = []string{"rain"} },
		"--annotation":  func(o *AnnounceOptions) { o.Annotations = []string{"word"} },
		"--connections": func(o *AnnounceOptions) { o.Connections = 0 },
	} {
		bad := good
		change(&bad)
		if err := bad.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want something about %s", err, want)
		}
	}
}
