package nftables

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

const (
	tableName = "fairway"
	// layout is the version of what is below and in layout.go. A table with
	// another one is replaced as a whole, in one transaction.
	layout       = 4
	tableComment = "Services on this node; managed by fairway, changes are undone; layout 4"
	// clients bounds the memory of session affinity, in clients per family.
	clients = 1 << 20
)

// familySets are the sets of which there is one for IPv4 and one for IPv6.
type familySets struct {
	pods, reserved, exempt *set
	allowed                *set
	from                   [model.NumOrigins]*set
	slots, members         *set
	clients, backends      *set
	connections, refused   *set // counters by frontend: see counting.go
	bytesIn, bytesOut      *set
}

var (
	podInterfaces = &set{name: "pod-interfaces", key: []fieldType{ifname}, flags: unix.NFT_SET_INTERVAL,
		comment: "packets that come in here are from pods"}
	pools = &set{name: "pools", key: []fieldType{class}, value: []fieldType{class},
		comment: "pool: how a backend is chosen"}
	fresh = &set{name: "fresh", key: []fieldType{class}, value: []fieldType{class},
		comment: "pool with session affinity: how a backend is chosen for an unknown client"}
	learn = &set{name: "learn", key: []fieldType{class}, value: []fieldType{class},
		comment: "pool with session affinity: how long a client is remembered"}
	learners = &set{name: "learners", key: []fieldType{class}, value: verdictMap,
		comment: "how long a client is remembered: the chain that does it"}
	choosers = newChooserSets()
	v4       = newFamilySets("4", ipv4, "ip")
	v6       = newFamilySets("6", ipv6, "ip6")
	sets     = numbered(slices.Concat([]*set{podInterfaces, pools, fresh, learn, learners}, choosers[:], v4.all(), v6.all()))
)

// inBatch is the number by which rules of the same transaction name the set.
// That it mentions sets has them numbered before rules are made.
func (s *set) inBatch() uint32 {
	return sets[s.id-1].id
}

func numbered(list []*set) []*set {
	for i, s := range list {
		s.id = uint32(i + 1)
	}
	return list
}

// newChooserSets are the only verdict maps beside learners. They must stay
// small: the kernel walks through all elements of all verdict maps, to see that
// chains don't go in circles, in every transaction that adds an element which
// leads to a chain (nft_table_validate).
func newChooserSets() (list [model.NumOrigins]*set) {
	for o := range list {
		list[o] = &set{name: "choosers-" + model.Origin(o).String(), key: []fieldType{class}, value: verdictMap,
			comment: "how a backend is chosen: the chain that does it for packets from " + originText[o]}
	}
	return list
}

func newFamilySets(suffix string, addr fieldType, ip string) *familySets {
	key, backend := []fieldType{addr, protocol, service}, []fieldType{addr, service}
	f := &familySets{
		pods: &set{name: "pods" + suffix, key: []fieldType{addr}, flags: unix.NFT_SET_INTERVAL,
			comment: "packets with these sources are from pods"},
		reserved: &set{name: "reserved" + suffix, key: []fieldType{addr}, flags: unix.NFT_SET_INTERVAL,
			comment: "Service ranges: what nothing serves there is refused"},
		exempt: &set{name: "exempt" + suffix, key: []fieldType{addr},
			comment: "Service addresses that somebody else serves"},
		allowed: &set{name: "allowed" + suffix, key: []fieldType{addr, protocol, service, addr}, flags: unix.NFT_SET_INTERVAL,
			comment: "frontends that are open to some sources only, and these sources"},
		slots: &set{name: "slots" + suffix, key: []fieldType{class, index}, value: backend,
			declaration: "typeof meta priority . numgen random mod 2 : " + ip + " daddr . tcp dport",
			comment:     "pool and index: backend"},
		members: &set{name: "members" + suffix, key: []fieldType{class}, value: backend,
			comment: "backends of pools with session affinity, by the hash that clients keeps"},
		clients: &set{name: "clients" + suffix, key: []fieldType{class, addr}, value: []fieldType{class}, learned: true, size: clients,
			comment: "session affinity: pool and client: the backend's hash"},
		backends: &set{name: "backends" + suffix, key: []fieldType{addr, addr, protocol, service},
			comment: "all backends, the address twice: finds hairpin, and answers that lost their connection"},
		connections: &set{name: "connections" + suffix, key: key, value: []fieldType{class}, counted: true,
			comment: "frontends: masqueraded (0:1), unless from pods (0:2), by origin (0:3); counts connections that got a backend"},
		refused:  newCounterSet("refused"+suffix, key, "destination: packets that were refused"),
		bytesIn:  newCounterSet("bytes-in"+suffix, key, "frontend: bytes from clients"),
		bytesOut: newCounterSet("bytes-out"+suffix, key, "frontend: bytes to clients"),
	}
	for o := range f.from {
		f.from[o] = &set{name: "from-" + model.Origin(o).String() + suffix, key: key, value: []fieldType{class},
			comment: "frontend: pool for packets from " + originText[o] + "; plus 8000:0 if masqueraded, 4000:0 if only some sources are let in"}
	}
	return f
}

var originText = [model.NumOrigins]string{model.FromPod: "pods", model.FromNode: "this node", model.FromOutside: "outside"}

func (f *familySets) all() []*set {
	return []*set{f.pods, f.reserved, f.exempt, f.allowed, f.from[0], f.from[1], f.from[2],
		f.slots, f.members, f.clients, f.backends, f.connections, f.refused, f.bytesIn, f.bytesOut}
}

func setsOf(ipv6 bool) *familySets {
	if ipv6 {
		return v6
	}
	return v4
}
