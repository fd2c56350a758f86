package endpoints

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// address tells endpoints apart: Pods on different networks may have the same IP.
type address struct {
	ip  string
	uid types.UID
}

// member is one address with everything known of it while subsets are packed.
type member struct {
	value corev1.EndpointAddress
	// ready by port.
	ready map[string]bool
}

// Repack returns the same endpoints in the canonical form: each address with
// all its ports in as few subsets as possible, everything sorted. An address
// said to be both ready and not ready on a port is not ready.
func Repack(subsets []corev1.EndpointSubset) []corev1.EndpointSubset {
	members := map[address]*member{}
	ports := map[string]corev1.EndpointPort{}
	for _, subset := range subsets {
		note(members, ports, subset.Addresses, subset.Ports, true)
		note(members, ports, subset.NotReadyAddresses, subset.Ports, false)
	}
	packed := map[string]*corev1.EndpointSubset{}
	for _, m := range members {
		for _, ready := range []bool{true, false} {
			var keys []string
			for port, is := range m.ready {
				if is == ready {
					keys = append(keys, port)
				}
			}
			if len(keys) > 0 {
				place(packed, ports, keys, m.value, ready)
			}
		}
	}
	var repacked []corev1.EndpointSubset
	for _, key := range slices.Sorted(maps.Keys(packed)) {
		subset := packed[key]
		slices.SortFunc(subset.Addresses, compareAddresses)
		slices.SortFunc(subset.NotReadyAddresses, compareAddresses)
		repacked = append(repacked, *subset)
	}
	return repacked
}

// note enters addresses on ports. A headless Service may have no port at all;
// the empty key stands for that.
func note(members map[address]*member, known map[string]corev1.EndpointPort, addresses []corev1.EndpointAddress, ports []corev1.EndpointPort, ready bool) {
	keys := []string{""}
	if len(ports) > 0 {
		keys = keys[:0]
	}
	for _, port := range ports {
		keys = append(keys, portKey(port))
		known[portKey(port)] = port
	}
	for _, a := range addresses {
		id := identify(a)
		m := members[id]
		if m == nil {
			m = &member{value: a, ready: map[string]bool{}}
			members[id] = m
		}
		for _, key := range keys {
			if was, seen := m.ready[key]; !seen || was {
				m.ready[key] = ready
			}
		}
	}
}

func place(packed map[string]*corev1.EndpointSubset, ports map[string]corev1.EndpointPort, keys []string, a corev1.EndpointAddress, ready bool) {
	slices.Sort(keys)
	all := strings.Join(keys, "|")
	subset := packed[all]
	if subset == nil {
		subset = &corev1.EndpointSubset{}
		for _, key := range keys {
			if port, ok := ports[key]; ok {
				subset.Ports = append(subset.Ports, port)
			}
		}
		packed[all] = subset
	}
	if ready {
		subset.Addresses = append(subset.Addresses, a)
	} else {
		subset.NotReadyAddresses = append(subset.NotReadyAddresses, a)
	}
}

func identify(a corev1.EndpointAddress) address {
	id := address{ip: a.IP}
	if a.TargetRef != nil {
		id.uid = a.TargetRef.UID
	}
	return id
}

func compareAddresses(a, b corev1.EndpointAddress) int {
	x, y := identify(a), identify(b)
	return cmp.Or(cmp.Compare(x.ip, y.ip), cmp.Compare(x.uid, y.uid))
}

func portKey(p corev1.EndpointPort) string {
	protocol := ""
	if p.AppProtocol != nil {
		protocol = *p.AppProtocol
	}
	return fmt.Sprintf("%s/%d/%s/%s", p.Name, p.Port, p.Protocol, protocol)
}

// truncate leaves at most limit addresses, ready ones before the others and
// each subset with its share, and reports whether it had to drop any.
func truncate(subsets []corev1.EndpointSubset, limit int) bool {
	ready, notReady := 0, 0
	for _, s := range subsets {
		ready += len(s.Addresses)
		notReady += len(s.NotReadyAddresses)
	}
	if ready+notReady <= limit {
		return false
	}
	readyLimit := min(ready, limit)
	notReadyLimit := limit - readyLimit
	for i := range subsets {
		s := &subsets[i]
		keep := share(len(s.Addresses), &ready, &readyLimit)
		s.Addresses = s.Addresses[:keep]
		keep = share(len(s.NotReadyAddresses), &notReady, &notReadyLimit)
		s.NotReadyAddresses = s.NotReadyAddresses[:keep]
	}
	return true
}

// share returns how many of n, out of *total still to come, may stay of *limit,
// and takes both off. Rounding thus never loses a place.
func share(n int, total, limit *int) int {
	if *total == 0 {
		return 0
	}
	keep := n * *limit / *total
	*total -= n
	*limit -= keep
	return keep
}
