package lab_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/lab"
)

// TestNamesAndForwarding makes Services, one after the other, while other
// questions are asked all the time: from the moment on in which a name resolves
// its address is forwarded, whoever had asked for the name before; and the name
// of one that is deleted goes for good.
func TestNamesAndForwarding(t *testing.T) {
	c, pod := dnsLab(t, "dns-coherent", "nftables")
	a := newAsker(t, c, pod)
	eventually(t, "the node answers itself", func() bool { return holds(c, "node1") })
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	web := waitForSlice(t, c, "web")
	eventually(t, "web resolves", func() bool { return a.ask() == nil })
	q := a.askAlways(t, 4)
	for i := range 20 {
		name := fmt.Sprintf("new-%d", i)
		if addrs, err := a.lookup(name); err != nil || len(addrs) > 0 {
			t.Fatalf("%s before it is there: %v, %v", name, addrs, err)
		}
		slice := &discoveryv1.EndpointSlice{ // first, so that there is somebody behind the address
			ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: web.AddressType, Endpoints: web.Endpoints, Ports: web.Ports,
		}
		if _, err := client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
		service.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
		if service, err = client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var addrs []string
		eventually(t, name+" resolves", func() bool { addrs, err = a.lookup(name); return err == nil && len(addrs) == 1 })
		if addrs[0] != service.Spec.ClusterIP {
			t.Fatalf("%s is %v, want %s", name, addrs, service.Spec.ClusterIP)
		}
		if err := a.connect(net.JoinHostPort(addrs[0], "80")); err != nil {
			t.Errorf("%s resolves, and isn't forwarded: %v", name, err)
		}
		if err := client.CoreV1().Services("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+" is gone", func() bool { addrs, err := a.lookup(name); return err == nil && len(addrs) == 0 })
		for range 5 {
			if addrs, err := a.lookup(name); err != nil || len(addrs) > 0 {
				t.Errorf("%s is back: %v, %v", name, addrs, err)
			}
		}
	}
	q.check(t, c)
}

// waitForSlice is a Service's slice once it has endpoints.
func waitForSlice(t *testing.T, c lab.Config, service string) (slice *discoveryv1.EndpointSlice) {
	t.Helper()
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, service+" has endpoints", func() bool {
		list, err := client.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if s := &list.Items[i]; s.AddressType == discoveryv1.AddressTypeIPv4 && len(s.Endpoints) > 0 {
				slice = s
			}
		}
		return slice != nil
	})
	return slice
}

// lookup asks for a Service's addresses; none for a name that isn't there.
func (a *asker) lookup(service string) (addrs []string, err error) {
	answer, _, err := a.exchange(service + ".default.svc.cluster.local.")
	if err != nil {
		return nil, err
	}
	if answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError {
		return nil, fmt.Errorf("the answer is %s", dns.RcodeToString[answer.Rcode])
	}
	for _, r := range answer.Answer {
		if record, ok := r.(*dns.A); ok {
			addrs = append(addrs, record.A.String())
		}
	}
	return addrs, nil
}

// connect makes a TCP connection from the pod.
func (a *asker) connect(to string) error {
	var conn net.Conn
	err := a.ns.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", to, waitTimeout/2)
		return err
	})
	if err != nil {
		return err
	}
	return conn.Close()
}
