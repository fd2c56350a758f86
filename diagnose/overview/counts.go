package overview

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/endpoint/check"
)

// tally is how many endpoints a Service has in each family, each address and
// port once.
type tally struct{ four, six ratio }

type ratio struct{ all, ready int }

func (t tally) sum() (all, ready int) { return t.four.all + t.six.all, t.four.ready + t.six.ready }

// String names the families where there are endpoints of both.
func (t tally) String() string {
	all, ready := t.sum()
	if t.four.all > 0 && t.six.all > 0 {
		return fmt.Sprintf("%d of %d IPv4, %d of %d IPv6", t.four.ready, t.four.all, t.six.ready, t.six.all)
	}
	return fmt.Sprintf("%d of %d", ready, all)
}

// count counts the endpoints of all Services. One that is in several slices is
// ready if it is in any of them.
func count(list []discoveryv1.EndpointSlice) map[types.NamespacedName]tally {
	found := map[types.NamespacedName]map[string]bool{}
	for i := range list {
		service, belongs := check.ServiceOf(&list[i])
		if !belongs {
			continue
		}
		if found[service] == nil {
			found[service] = map[string]bool{}
		}
		for _, e := range list[i].Endpoints {
			if len(e.Addresses) > 0 {
				name := endpointName(e.Addresses[0], list[i].Ports)
				found[service][name] = found[service][name] || e.Conditions.Ready == nil || *e.Conditions.Ready
			}
		}
	}
	counts := map[types.NamespacedName]tally{}
	for service, endpoints := range found {
		var t tally
		for name, ready := range endpoints {
			of := &t.four
			if strings.HasPrefix(name, "[") {
				of = &t.six
			}
			of.all++
			if ready {
				of.ready++
			}
		}
		counts[service] = t
	}
	return counts
}

// endpointName is the address with the first port.
func endpointName(address string, ports []discoveryv1.EndpointPort) string {
	port := ""
	if len(ports) > 0 && ports[0].Port != nil {
		port = strconv.Itoa(int(*ports[0].Port))
	}
	return net.JoinHostPort(address, port)
}
