//go:build !agentonly

package cmd

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// calls are connections from every machine to a Service of both families: one
// that lasts, and a new one every few milliseconds.
type calls struct {
	t        *trio
	mu       sync.Mutex
	answered map[string]int // by who it was that called, and how
	failures []string
}

// startCalls publishes a process on m2 and one on m3, and calls them from all
// machines until the returned function is called.
func (t *trio) startCalls() (c *calls, stop func()) {
	t.t.Helper()
	for _, name := range []string{"m2", "m3"} {
		t.hosts[name].start(asProcess + "=" + name + " exec " + os.Args[0])
	}
	c = &calls{t: t, answered: map[string]int{}}
	addresses := c.publish()
	ctx, cancel := context.WithCancel(context.Background())
	var calling sync.WaitGroup
	for _, name := range t.names {
		for _, address := range addresses {
			url := "http://" + net.JoinHostPort(address, "80") + "/"
			family := "IPv4"
			if strings.Contains(address, ":") {
				family = "IPv6"
			}
			eventually(t.t, name+" reaches "+address, func() bool { return c.caller(name, nil).call(ctx, url) == nil })
			calling.Go(func() { c.last(ctx, name, family, url) })
			calling.Go(func() { c.again(ctx, name, family, url) })
		}
	}
	return c, func() {
		cancel()
		calling.Wait()
	}
}

// publish makes the Service and returns its addresses.
func (c *calls) publish() []string {
	c.t.t.Helper()
	ctx, api, both := c.t.t.Context(), c.t.apis[0], corev1.IPFamilyPolicyRequireDualStack
	service, err := api.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "called"},
		Spec:       corev1.ServiceSpec{IPFamilyPolicy: &both, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	c.t.must(err)
	port, name := int32(8000), "http"
	for family, format := range map[discoveryv1.AddressType]string{discoveryv1.AddressTypeIPv4: "10.77.0.1%d", discoveryv1.AddressTypeIPv6: "fd00:77::1%d"} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: "called-" + strings.ToLower(string(family)), Labels: map[string]string{discoveryv1.LabelServiceName: "called"}},
			AddressType: family, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		}
		for _, n := range []int{2, 3} {
			node := fmt.Sprintf("m%d", n)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf(format, n)}, NodeName: &node})
		}
		_, err := api.DiscoveryV1().EndpointSlices("default").Create(ctx, slice, metav1.CreateOptions{})
		c.t.must(err)
	}
	return service.Spec.ClusterIPs
}

// caller calls from a machine.
type caller struct{ http.Client }

// caller returns one that tells dialed of each connection.
func (c *calls) caller(machine string, dialed func()) *caller {
	m := c.t.hosts[machine]
	return &caller{http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dialed != nil {
				dialed()
			}
			return m.dial(ctx, network, address)
		},
		DisableKeepAlives: dialed == nil, MaxIdleConns: 1,
	}}}
}

func (c *caller) call(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := c.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was read to its end
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// last calls over one connection all the time.
func (c *calls) last(ctx context.Context, machine, family, url string) {
	connections := 0
	caller := c.caller(machine, func() { connections++ })
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		err := caller.call(ctx, url)
		if err == nil && connections > 1 {
			err = fmt.Errorf("the connection was lost, this is number %d", connections)
			connections = 1
		}
		c.note(ctx, machine+" over one connection, "+family, err)
	}
	caller.CloseIdleConnections()
}

// again calls over a new connection each time.
func (c *calls) again(ctx context.Context, machine, family, url string) {
	caller := c.caller(machine, nil)
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		c.note(ctx, machine+" over new connections, "+family, caller.call(ctx, url))
	}
}

func (c *calls) note(ctx context.Context, who string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.answered[who]++
	case ctx.Err() == nil:
		c.failures = append(c.failures, fmt.Sprintf("%s: %s: %v", time.Now().Format(time.StampMilli), who, err))
	}
}

// check expects that nothing failed so far.
func (c *calls) check(after string) {
	c.t.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, failure := range c.failures {
		if i < 10 {
			c.t.t.Errorf("%s: %s", after, failure)
		}
	}
	if len(c.failures) > 0 {
		c.t.t.Errorf("%s: %d calls failed", after, len(c.failures))
	}
	c.failures = nil
}
