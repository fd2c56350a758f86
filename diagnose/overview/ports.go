package overview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/endpoint/check"
)

// servicePort is a port of a Service, as slices name it.
type servicePort struct {
	service        types.NamespacedName
	name, protocol string
}

// differentPorts names Services for whose one port machines publish different
// ones. It works, and may be meant; it may be a slip as well.
func differentPorts(list []discoveryv1.EndpointSlice) []string {
	published := map[servicePort]map[int32][]string{} // the machines of each port
	for i := range list {
		s := &list[i]
		service, belongs := check.ServiceOf(s)
		machine := s.Labels[check.NodeLabel]
		if !belongs || machine == "" || len(s.Endpoints) == 0 {
			continue
		}
		for _, p := range s.Ports {
			if p.Port == nil || p.Protocol == nil || p.Name == nil {
				continue
			}
			at := servicePort{service, *p.Name, string(*p.Protocol)}
			if published[at] == nil {
				published[at] = map[int32][]string{}
			}
			published[at][*p.Port] = append(published[at][*p.Port], machine)
		}
	}
	var lines []string
	for at, ports := range published {
		if alike(ports) {
			continue
		}
		var said []string
		for _, port := range slices.Sorted(maps.Keys(ports)) {
			said = append(said, fmt.Sprintf("%d (%s)", port, strings.Join(slices.Compact(slices.Sorted(slices.Values(ports[port]))), ", ")))
		}
		lines = append(lines, fmt.Sprintf("service %s: machines publish different %s ports under this name: %s",
			at.service, cmp.Or(at.name, at.protocol), strings.Join(said, ", ")))
	}
	slices.Sort(lines)
	return lines
}

// alike reports whether every machine publishes the same ports.
func alike(ports map[int32][]string) bool {
	machines := map[string]int{}
	for _, of := range ports {
		for _, m := range slices.Compact(slices.Sorted(slices.Values(of))) {
			machines[m]++
		}
	}
	for _, n := range machines {
		if n != len(ports) {
			return false
		}
	}
	return true
}
