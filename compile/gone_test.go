package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/model"
)

// serviceOf makes a Service and its slice, of one endpoint for each node given. One whose name
// ends in ! isn't ready; "" names no node.
func serviceOf(c *Compiler, number int, nodes ...string) model.PoolID {
	name, port, isNot := fmt.Sprint("s", number), int32(80), false
	c.SetService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: fmt.Sprint("10.96.0.", number), Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
	}})
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
	}
	for i, node := range nodes {
		e := discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.%d.%d", number, i+1)}}
		if cut, isUnready := strings.CutSuffix(node, "!"); isUnready {
			node, e.Conditions.Ready = cut, &isNot
		}
		if node != "" {
			e.NodeName = &node
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	c.SetSlice(slice)
	return model.PoolID{Name: "default/" + name, Proto: model.TCP}
}

func machines(names ...string) (list []Machine) {
	for _, n := range names {
		list = append(list, Machine{Name: n})
	}
	return list
}

// TestMachinesGoneByAddress: endpoints that name no node are on the machine whose Node lists their
// address. Those of this node's own addresses aren't passed over, and neither are endpoints that
// name another node.
func TestMachinesGoneByAddress(t *testing.T) {
	for _, c := range []struct {
		what  string
		nodes []string // of the endpoints 10.0.1.1 and so on
		gone  []string // addresses of the machine
		want  []int    // who takes new connections
	}{
		{"one", []string{"", "", ""}, []string{"10.0.1.2", "fd00::2"}, []int{1, 3}},
		{"no address of an endpoint", []string{"", ""}, []string{"10.0.9.9"}, []int{1, 2}},
		{"all there is", []string{"", ""}, []string{"10.0.1.1", "10.0.1.2"}, []int{1, 2}},
		{"that of another node", []string{"", "c"}, []string{"10.0.1.2"}, []int{1, 2}},
		{"this node's own, too", []string{"", "", ""}, []string{"10.0.1.1", "10.0.1.2"}, []int{1, 3}},
	} {
		compiler := New(Config{})
		self := Node{Name: "a"}
		if c.what == "this node's own, too" {
			self.Addresses = []netip.Addr{netip.MustParseAddr("10.0.1.1")}
		}
		compiler.SetNode(self)
		id := serviceOf(compiler, 1, c.nodes...)
		compiler.Table()
		machine := Machine{Name: "b"}
		for _, a := range c.gone {
			machine.Addresses = append(machine.Addresses, netip.MustParseAddr(a))
		}
		asked := compiler.AddressesOn(machine, 9)
		compiler.SetGone([]Machine{machine})
		var got []int
		for _, b := range compiler.Table().Pool(id).Backends {
			got = append(got, int(b.Addr.As4()[3]))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s gone: %v take new connections, want %v", c.what, got, c.want)
		}
		if out := len(c.nodes) - len(c.want); out > 0 && len(asked) != out {
			t.Errorf("%s gone: the machine is asked at %v", c.what, asked)
		}
	}
}

// TestMachinesGone: endpoints on machines that are gone keep what they have and get no new
// connections, as long as another endpoint is ready; a Service never has none for that reason, and
// this node's own are never passed over.
func TestMachinesGone(t *testing.T) {
	for _, c := range []struct {
		what  string
		nodes []string // of the endpoints, in the order of their addresses
		gone  []string
		want  []int // who takes new connections
	}{
		{"none", []string{"a", "b", "c"}, nil, []int{1, 2, 3}},
		{"one", []string{"a", "b", "c"}, []string{"b"}, []int{1, 3}},
		{"two", []string{"a", "b", "c"}, []string{"b", "c"}, []int{1}},
		{"all there is", []string{"b", "c"}, []string{"b", "c"}, []int{1, 2}},
		{"all that is ready", []string{"b", "c!"}, []string{"b"}, []int{1}},
		{"this one", []string{"a", "b"}, []string{"a"}, []int{1, 2}},
		{"unknown", []string{"a", "b"}, []string{"z"}, []int{1, 2}},
	} {
		compiler := New(Config{})
		compiler.SetNode(Node{Name: "a"})
		id := serviceOf(compiler, 1, c.nodes...)
		before := compiler.Table()
		compiler.SetGone(machines(c.gone...))
		pool := compiler.Table().Pool(id)
		if pool == nil {
			t.Fatalf("%s: no pool", c.what)
		}
		var got, all []int
		for _, b := range pool.Backends {
			got = append(got, int(b.Addr.As4()[3]))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s gone: %v take new connections, want %v", c.what, got, c.want)
		}
		for _, b := range slices.Concat(pool.Backends, pool.Draining) {
			all = append(all, int(b.Addr.As4()[3]))
		}
		if len(all) != len(c.nodes) {
			t.Errorf("%s gone: only %v keep their connections", c.what, all)
		}
		for _, k := range compiler.Candidates(id) {
			if isOut := !slices.Contains(c.want, int(k.Addr.As4()[3])); isOut != (k.Choice == MachineGone) && k.Choice != NotReady {
				t.Errorf("%s gone: %s: %s", c.what, k.Addr, k.Choice)
			}
		}
		compiler.SetGone(nil)
		if !compiler.Table().Pool(id).Equal(before.Pool(id)) {
			t.Errorf("%s gone and there again: the pool is another one", c.what)
		}
	}
}

// TestGoneCost: only Services with endpoints on the machine are compiled again.
func TestGoneCost(t *testing.T) {
	c := New(Config{})
	c.SetNode(Node{Name: "a"})
	for i := range 50 {
		serviceOf(c, i+1, "a", fmt.Sprint("m", i%10))
	}
	c.Table()
	before := c.compiled
	c.SetGone(machines("m3"))
	c.Table()
	c.SetGone(machines("m3"))
	c.Table()
	if got := c.compiled - before; got != 5 {
		t.Errorf("%d Services are compiled again, want the 5 with endpoints there", got)
	}
	if got := c.AddressesOn(Machine{Name: "m3"}, 3); len(got) != 3 || slices.ContainsFunc(got, func(a netip.Addr) bool { return a.As4()[3] != 2 }) {
		t.Errorf("%v are on the machine", got)
	}
}
