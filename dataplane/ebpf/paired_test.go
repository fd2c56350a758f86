package ebpf

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// The benchmarks in this file compare ways to one server from one process, which
// takes them in turns, an exchange at a time: whatever else the machine does meets
// all of them. Client and server share a processor, so that what one of them costs
// isn't hidden behind the other. Ways are told by their medians:
//
//	bare     to an endpoint, on a node that has never had programs
//	empty    the same, with programs at the same hooks that do nothing
//	direct   to an endpoint, on the node with the programs and the Services
//	vip      to one Service of that node's
//	vips     to all of them, in no order
//	tc       to one Service by the interfaces: a client whose sockets aren't in the
//	         node's cgroup, as those from outside
//
// What programs take is the kernel's own count of their time (BPF_ENABLE_STATS),
// in a run of its own, since counting costs something too.
const (
	bare    = "bare"
	empty   = "empty"
	direct  = "direct"
	oneVIP  = "vip"
	allVIPs = "vips"
	byTC    = "tc"
)

var waysInTurn = [...]string{bare, empty, direct, oneVIP, allVIPs, byTC}

// exchanges is how a benchmark uses a way, and what it leaves when it ends.
type exchanges struct {
	exchange func(way string) error
	end      func() error
}

// inTurns compares all ways, with few Services and with many.
func inTurns(b *testing.B, serve manner, begin func(b *testing.B, s *stock) exchanges) {
	for _, services := range []int{1, 10000} {
		b.Run(strconv.Itoa(services), func(b *testing.B) {
			s := &stock{serve.kind, newSites(b, services, serve), map[string][]int{}}
			defer s.close(b)
			check(b, onOneProcessor())
			do := begin(b, s)
			ways, took := slices.Clone(waysInTurn[:]), laps{}
			for b.Loop() {
				for _, way := range ways {
					check(b, took.measure(way, func() error { return do.exchange(way) }))
				}
				ways = append(ways[1:], ways[0])
			}
			took.report(b)
			s.sites[direct].reportPrograms(b, do.exchange)
			check(b, do.end())
		})
	}
}

// BenchmarkConnections: connect, a byte there and back, close.
func BenchmarkConnections(b *testing.B) {
	inTurns(b, oneByOne, func(b *testing.B, s *stock) exchanges {
		return exchanges{func(way string) error {
			fd := s.take(b, way)
			return errors.Join(connectTo(fd, s.sites[way].to(way)), pingPong(fd), unix.Close(fd))
		}, func() error { return nil }}
	})
}

// BenchmarkRoundTrips: a byte there and back on a connection.
func BenchmarkRoundTrips(b *testing.B) { inTurns(b, allAtOnce, onOpen) }

// BenchmarkConnectedUDP: a datagram there and back on a connected socket.
func BenchmarkConnectedUDP(b *testing.B) { inTurns(b, datagrams, onOpen) }

// onOpen exchanges bytes on a connection that is there.
func onOpen(b *testing.B, s *stock) exchanges {
	open := map[string]int{}
	for way, at := range s.sites {
		open[way] = s.take(b, way)
		check(b, connectTo(open[way], at.to(way)))
	}
	return exchanges{func(way string) error { return pingPong(open[way]) }, func() error { return closeAll(open) }}
}

// BenchmarkDatagrams: a datagram there and back on a socket that isn't
// connected.
func BenchmarkDatagrams(b *testing.B) {
	inTurns(b, datagrams, func(b *testing.B, s *stock) exchanges {
		open := map[string]int{}
		for way := range s.sites {
			open[way] = s.take(b, way)
		}
		return exchanges{func(way string) error {
			return askAndHear(open[way], s.sites[way].to(way))
		}, func() error { return closeAll(open) }}
	})
}

func closeAll(open map[string]int) error {
	var errs []error
	for _, fd := range open {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
