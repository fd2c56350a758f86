package trace

import (
	"cmp"
	"math"
	"slices"

	"github.com/fairway-net/fairway/internal/nftrace"
)

// place is where a step of a packet happens: the turn of its hook, and the priority there.
type place struct {
	turn     int
	priority int32
}

// inOrder are events with those of iptables-legacy, of which the kernel tells elsewhere,
// between those of nf_tables: by hook and priority. Others keep their order.
func inOrder(events []nftrace.Event, n Namer) []nftrace.Event {
	if !slices.ContainsFunc(events, func(e nftrace.Event) bool { return e.Legacy != nil }) {
		return events
	}
	byPacket := map[int][]nftrace.Event{}
	var numbers []int
	for _, e := range events {
		if byPacket[e.Packet] == nil {
			numbers = append(numbers, e.Packet)
		}
		byPacket[e.Packet] = append(byPacket[e.Packet], e)
	}
	var list []nftrace.Event
	for _, number := range numbers {
		list = append(list, placed(byPacket[number], n)...)
	}
	return list
}

// placed are the events of one packet.
func placed(events []nftrace.Event, n Namer) []nftrace.Event {
	turns, hook, last := map[string]int{}, "", place{-1, math.MinInt32}
	turnOf := func(hook string) int {
		if _, ok := turns[hook]; !ok {
			turns[hook] = len(turns)
		}
		return turns[hook]
	}
	type step struct {
		event nftrace.Event
		at    place
	}
	var steps []step
	for _, legacy := range []bool{false, true} { // nf_tables tells of every hook, as packets come to it
		for _, e := range events {
			if (e.Legacy != nil) != legacy {
				continue
			}
			base, known := n.Base(e)
			switch {
			case e.Passed == nftrace.Begins:
				last = place{-1, math.MinInt32}
			case e.Passed != "":
				hook = e.Passed
				last = place{turnOf(hook), math.MaxInt32}
			case known:
				hook = base.Hook
				last = place{turnOf(hook), base.Priority}
			}
			steps = append(steps, step{e, last})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int {
		if a.at.turn != b.at.turn {
			return a.at.turn - b.at.turn
		}
		return cmp.Compare(a.at.priority, b.at.priority)
	})
	list := make([]nftrace.Event, len(steps))
	for i := range steps {
		list[i] = steps[i].event
	}
	return list
}
