package compile

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// big returns a compiler that knows n Services with a node port and ten
// endpoints each, and two forms of one slice to go back and forth between: they
// differ in an endpoint of this zone.
func big(n int) (c *Compiler, forms [2]*discoveryv1.EndpointSlice) {
	c = New(testConfig)
	c.SetNode(testNode)
	for i := range n {
		s, slice := bigService(i)
		c.SetService(s)
		c.SetSlice(slice)
		if i == n/2 {
			forms[0], forms[1] = slice, slice.DeepCopy()
			forms[1].Endpoints[1].Conditions.Ready = ptr(false)
		}
	}
	c.Table()
	return c, forms
}

func bigService(i int) (*corev1.Service, *discoveryv1.EndpointSlice) {
	s := &corev1.Service{}
	s.Namespace, s.Name = "default", fmt.Sprintf("web-%d", i)
	s.Spec.Type = corev1.ServiceTypeNodePort
	s.Spec.ClusterIP = fmt.Sprintf("10.96.%d.%d", i/250, i%250+1)
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, NodePort: int32(20000 + i)}}
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	slice.Namespace, slice.Name = "default", s.Name+"-abcde"
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: s.Name}
	slice.Ports = []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(8080))}}
	for e := range 10 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+i/25000, i/100%250, (i%100)*10%250+e)},
			NodeName:  ptr(fmt.Sprintf("node-%d", e)),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("%s-%d", s.Name, e)},
			Hints:     &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: fmt.Sprintf("z%d", e%3)}}},
		})
	}
	return s, slice
}

// TestCostOfAChange: however many Services there are, a changed slice has one
// of them compiled, one pool replaced and the same few objects allocated.
func TestCostOfAChange(t *testing.T) {
	allocations := map[int]float64{}
	for _, n := range []int{100, 5000} {
		c, forms := big(n)
		before, compiled := c.Table(), c.compiled
		c.SetSlice(forms[1])
		after := c.Table()
		if c.compiled != compiled+1 {
			t.Errorf("%d Services: %d were compiled", n, c.compiled-compiled)
		}
		if d := after.Since(before); len(d.Pools) != 1 || len(d.Frontends) != 0 || d.Settings {
			t.Errorf("%d Services: %d pools and %d frontends changed", n, len(d.Pools), len(d.Frontends))
		}
		i := 0
		allocations[n] = testing.AllocsPerRun(100, func() {
			c.SetSlice(forms[i%2])
			c.Table()
			i++
		})
	}
	t.Logf("allocations of a change: %v", allocations)
	if math.Abs(allocations[100]-allocations[5000]) > 1 || allocations[5000] > 40 {
		t.Errorf("allocations of a change by number of Services: %v", allocations)
	}
}

// TestSayingItAgainCostsNothing: an informer's resync changes nothing.
func TestSayingItAgainCostsNothing(t *testing.T) {
	c, forms := big(10)
	table, compiled := c.Table(), c.compiled
	c.SetSlice(forms[0].DeepCopy())
	if c.Table() != table || c.compiled != compiled {
		t.Error("an unchanged slice was compiled")
	}
	s, _ := bigService(5)
	c.SetService(s)
	if c.Table() != table {
		t.Error("an unchanged Service made another table")
	}
}

func BenchmarkSliceChange(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, forms := big(n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.SetSlice(forms[i%2])
				c.Table()
			}
		})
	}
}

func BenchmarkServiceChange(b *testing.B) {
	c, _ := big(10000)
	s, _ := bigService(5)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Spec.Ports[0].Port = int32(80 + i%2)
		c.SetService(s)
		c.Table()
	}
}

func BenchmarkFromScratch(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		big(10000)
	}
}

// BenchmarkMemory reports what a compiler and its table hold of 10,000 Services
// and 100,000 endpoints.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		c, _ := big(10000)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/100000, "B/endpoint")
		runtime.KeepAlive(c)
	}
}

// BenchmarkLargeService changes one slice of a Service with 5,000 endpoints.
func BenchmarkLargeService(b *testing.B) {
	c := New(testConfig)
	c.SetNode(testNode)
	s, template := bigService(1)
	c.SetService(s)
	var last [2]*discoveryv1.EndpointSlice
	for i := range 50 {
		slice := template.DeepCopy()
		slice.Name = fmt.Sprintf("slice-%d", i)
		slice.Endpoints = nil
		for e := range 100 {
			endpoint := template.Endpoints[e%10].DeepCopy()
			endpoint.Addresses = []string{fmt.Sprintf("10.%d.%d.%d", e, i, e%7+1)}
			endpoint.Hints = nil
			slice.Endpoints = append(slice.Endpoints, *endpoint)
		}
		c.SetSlice(slice)
		last[0] = slice
	}
	last[1] = last[0].DeepCopy()
	last[1].Endpoints[50].Conditions.Ready = ptr(false)
	c.Table()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.SetSlice(last[i%2])
		c.Table()
	}
}
