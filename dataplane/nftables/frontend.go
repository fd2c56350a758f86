package nftables

import (
	"fmt"
	"hash/fnv"
	"net/netip"

	"github.com/fairway-net/fairway/model"
)

// frontendElements are the elements of a frontend. Those of ::1 are none: what
// arrives for it from outside the loopback interface is dropped by IPv6 before
// any table sees it (ipv6_rcv), answers included.
func (st *state) frontendElements(f *model.Frontend) []element {
	if f == nil || isLocalhost6(f.Addr) || st.noLocalnet && f.Addr.Is4() && f.Addr.IsLoopback() {
		return nil
	}
	own, key := setsOf(f.Addr.Is6()), keyFields(f.Key)
	list := make([]element, 0, int(model.NumOrigins)+2)
	for o, r := range f.Routes {
		number := st.number(r.Pool)
		if r.Masquerade {
			number |= masqueradeFlag
		}
		if f.Sources != nil {
			number |= restrictedFlag
		}
		list = append(list, element{set: own.from[o], key: key, data: native(number), comment: shorten(f.Name)})
	}
	list = append(list, element{set: own.connections, key: key, data: native(st.outgoing(f))})
	for _, p := range outermost(f.Sources, f.Addr.Is6()) {
		list = append(list, element{set: own.allowed, key: key + addrField(p.Addr()), keyEnd: key + addrField(lastAddr(p)),
			comment: shorten(f.Name)})
	}
	return list
}

func (st *state) number(id model.PoolID) uint32 {
	if ps := st.pools[id]; ps != nil {
		return ps.number
	}
	return 0
}

func isLocalhost6(a netip.Addr) bool { return a.Is6() && a.IsLoopback() }

func settingsElements(s *model.Settings) []element {
	list := nameIntervals(podInterfaces, s.Pods.Interfaces)
	for _, v6 := range []bool{false, true} {
		own := setsOf(v6)
		list = append(list, prefixIntervals(own.pods, s.Pods.Prefixes, v6)...)
		list = append(list, prefixIntervals(own.reserved, s.Reserved, v6)...)
		seen := map[netip.Addr]bool{}
		for _, a := range s.Exempt {
			if a.Is6() == v6 && !seen[a] {
				list = append(list, element{set: own.exempt, key: addrField(a)})
				seen[a] = true
			}
		}
	}
	return list
}

// maxComment is how long a comment nft takes (NFTNL_UDATA_COMMENT_MAXLEN).
const maxComment = 128

// label names a pool in comments. It is how the pool is found again after a
// restart, so it must be unique.
func label(id model.PoolID) string { return shorten(id.String()) }

// shorten cuts a comment to what nft takes, and keeps it unique.
func shorten(s string) string {
	if len(s) < maxComment {
		return s
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(s)) // never fails (hash.Hash)
	return fmt.Sprintf("%s~%08x", s[:maxComment-10], h.Sum32())
}
