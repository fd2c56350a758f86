package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/internal/cgroupsock"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/kubelet"
	"github.com/fairway-net/fairway/lab/topology"
)

// vantage is a place to ask from.
type vantage struct {
	name    string
	ns      *netns.NS
	sockets *cgroupsock.Maker // of the node's cgroup; nil where there is none
}

// openVantage opens a place by its namespace.
func (d *demo) openVantage(name, namespace string) (vantage, error) {
	ns, err := netns.Open(namespace)
	if err != nil {
		return vantage{}, err
	}
	v := vantage{name: name, ns: ns}
	cgroup, err := topology.NodeCgroup(d.config.Name, ns)
	if err == nil && cgroup != "" {
		v.sockets, err = cgroupsock.Start(cgroup)
	}
	if err != nil {
		return v, errors.Join(err, ns.Close())
	}
	return v, nil
}

func (v vantage) close() error {
	err := v.ns.Close()
	if v.sockets != nil {
		err = errors.Join(err, v.sockets.Close())
	}
	return err
}

type vantages struct {
	pod, node, client vantage
	nodes             []string // addresses of all nodes
}

// vantages opens a pod, a node and the outside client.
func (d *demo) vantages(ctx context.Context) (*vantages, error) {
	last := lab.NodeName(d.config.Nodes)
	v := &vantages{}
	if err := v.openPod(ctx, d); err != nil {
		return nil, err
	}
	var err error
	if v.node, err = d.openVantage("node "+last, topology.HostNamespace(d.config.Name, last)); err != nil {
		return nil, err
	}
	if v.client, err = d.openVantage("outside", topology.HostNamespace(d.config.Name, "client")); err != nil {
		return nil, err
	}
	nodes, err := d.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				v.nodes = append(v.nodes, a.Address)
			}
		}
	}
	return v, nil
}

// openPod opens the first pod of the Deployment hello.
func (v *vantages) openPod(ctx context.Context, d *demo) error {
	pods, err := d.podNames(ctx)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return errors.New("no pod to ask from")
	}
	pod := slices.Min(slices.Collect(maps.Keys(pods)))
	v.pod, err = d.openVantage("pod "+pod, topology.PodNamespace(d.config.Name, kubelet.PodName("default", pod)))
	return err
}

// reopenPod opens another pod when the first has been replaced.
func (v *vantages) reopenPod(ctx context.Context, d *demo) error {
	if err := v.pod.close(); err != nil {
		return err
	}
	return v.openPod(ctx, d)
}

func (v *vantages) all() []vantage { return []vantage{v.pod, v.node, v.client} }

func (v *vantages) close() error {
	return errors.Join(v.pod.close(), v.node.close(), v.client.close())
}

// dial connects from the place.
func (v vantage) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	if v.sockets != nil {
		d.Control = v.sockets.Control(v.ns.Name())
	}
	var c net.Conn
	err := v.ns.Do(func() (err error) {
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// ask asks a target who it is, on a connection of its own.
func (v vantage) ask(ctx context.Context, t target) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if t.network == "udp" {
		return v.askDatagram(ctx, t)
	}
	return v.get(ctx, t.String()+"/hostname")
}

// get gets a page on a connection of its own.
func (v vantage) get(ctx context.Context, url string) (string, error) {
	client := http.Client{Transport: &http.Transport{DialContext: v.dial, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(r)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1024))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("it says %s", resp.Status)
	}
	return strings.TrimSpace(string(body)), nil
}

func (v vantage) askDatagram(ctx context.Context, t target) (string, error) {
	c, err := v.dial(ctx, "udp", t.address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "who?\n"); err != nil {
		return "", err
	}
	answer := make([]byte, 1024)
	n, err := c.Read(answer)
	if err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(string(answer[:n]), " ")
	return name, nil
}
