//go:build !agentonly

package cmd

import (
	"bufio"
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

	"github.com/fairway-net/fairway/test/wait"
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
	ctx, cancel := context.WithCancel(context.Background())
	for _, process := range []string{"10.77.0.12", "10.77.0.13", "fd00:77::12", "fd00:77::13"} {
		eventually(t.t, process+" answers", func() bool { return c.once(ctx, "m1", net.JoinHostPort(process, "8000")) == nil })
	}
	addresses := c.publish()
	var calling sync.WaitGroup
	for _, name := range t.names {
		for _, address := range addresses {
			at := net.JoinHostPort(address, "80")
			family := "IPv4"
			if strings.Contains(address, ":") {
				family = "IPv6"
			}
			eventually(t.t, name+" reaches "+address, func() bool { return c.once(ctx, name, at) == nil })
			calling.Go(func() { c.last(ctx, name, family, at) })
			calling.Go(func() { c.again(ctx, name, family, at) })
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

// call calls over a connection.
func call(c net.Conn, buffered *bufio.Reader) error {
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: called\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(buffered, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was read to its end
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// once calls over a connection of its own.
func (c *calls) once(ctx context.Context, machine, address string) error {
	connection, err := c.dial(ctx, machine, address)
	if err != nil {
		return err
	}
	defer connection.Close() //nolint:errcheck // of a test
	return call(connection, bufio.NewReader(connection))
}

func (c *calls) dial(ctx context.Context, machine, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return c.t.hosts[machine].dial(ctx, "tcp", address)
}

// last calls over one connection all the time. One that is lost is replaced.
func (c *calls) last(ctx context.Context, machine, family, address string) {
	var connection net.Conn
	var buffered *bufio.Reader
	for range wait.Every(ctx, 50*time.Millisecond) {
		var err error
		if connection == nil {
			if connection, err = c.dial(ctx, machine, address); err == nil {
				buffered = bufio.NewReader(connection)
			}
		}
		if err == nil {
			err = call(connection, buffered)
		}
		if err != nil && connection != nil {
			_ = connection.Close() // it is of no use any more
			connection = nil
		}
		c.note(ctx, machine+" over one connection, "+family, err)
	}
	if connection != nil {
		_ = connection.Close() // of a test
	}
}

// again calls over a new connection each time.
func (c *calls) again(ctx context.Context, machine, family, address string) {
	for range wait.Every(ctx, 20*time.Millisecond) {
		c.note(ctx, machine+" over new connections, "+family, c.once(ctx, machine, address))
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
