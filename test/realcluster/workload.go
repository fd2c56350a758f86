package realcluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
)

const (
	// namespace is that of the pods and Services that are asked.
	namespace = "real"
	// nodeControlPort is ControlPort of the client that is a process of a node.
	nodeControlPort = ControlPort - 1
	hostPort        = 8099
)

// workload is a server on each node, clients, and a Service of each kind.
func (c *Cluster) workload() string {
	var b strings.Builder
	object := func(text string, args ...any) { fmt.Fprintf(&b, "---\n"+strings.TrimSpace(text)+"\n", args...) }
	object("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}", namespace)
	pod := func(name string, n *Node, labels, more string, args ...string) {
		object(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {%s}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  %s
  containers:
  - name: probe
    image: %s
    imagePullPolicy: Never
    args: ["%s"]
    resources: {requests: {cpu: 100m}}
    ports:
    - {containerPort: 8080, name: web%s}
    - {containerPort: 8080, protocol: UDP}
`, name, namespace, labels, n.Name, map[bool]string{true: more}[strings.HasPrefix(more, "hostNetwork")], ProbeImage, strings.Join(args, `", "`),
			map[bool]string{true: more}[strings.HasPrefix(more, ", hostPort")])
	}
	for _, n := range c.Nodes[:2] {
		pod("web-"+n.Name, n, "app: web, node: "+n.Name, "", "--serve", "web@"+n.Name, "--port", "8080", "--bodies", ":8081")
		pod("client-"+n.Name, n, "app: client-"+n.Name, "", "--serve", "client-"+n.Name, "--port", "8080", "--bodies", ":8081", "--ask", ":"+strconv.Itoa(ControlPort))
	}
	last := c.Nodes[1]
	pod("client-host", last, "app: client-host", "hostNetwork: true", "--ask", ":"+strconv.Itoa(ControlPort))
	pod("hostport", last, "app: hostport", fmt.Sprintf(", hostPort: %d", hostPort), "--serve", "hostport", "--port", "8080")
	service := func(name, selector, more string) {
		object(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s}
spec:
  ipFamilyPolicy: RequireDualStack
  selector: {%s}
%s
`, name, namespace, selector, more)
	}
	const ports = `  ports:
  - {name: web, port: 80, targetPort: web}
  - {name: datagrams, port: 80, targetPort: 8080, protocol: UDP}
  - {name: bodies, port: 81, targetPort: 8081}`
	service("web", "app: web", ports)
	service("affinity", "app: web", ports+"\n  sessionAffinity: ClientIP")
	service("empty", "app: nobody", ports)
	service("self", "app: client-"+c.Nodes[0].Name, ports)
	service("inside", "app: web", ports+"\n  internalTrafficPolicy: Local")
	service("nodeport", "app: web", "  type: NodePort\n"+`  ports:
  - {name: web, port: 80, targetPort: web, nodePort: 30080}
  - {name: datagrams, port: 80, targetPort: 8080, protocol: UDP, nodePort: 30080}`)
	service("local", "node: "+c.Nodes[0].Name+", app: web", `  type: LoadBalancer
  externalTrafficPolicy: Local
  healthCheckNodePort: 30500
  ports: [{name: web, port: 80, targetPort: web, nodePort: 30081}]`)
	object(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: rolling, namespace: %s}
spec:
  replicas: 4
  selector: {matchLabels: {app: rolling}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: rolling}}
    spec:
      containers:
      - name: probe
        image: %s
        imagePullPolicy: Never
        resources: {requests: {cpu: 100m}} # or it waits behind all else on a busy machine
        args: [--serve, rolling, --port, "8080", --linger]
        ports: [{containerPort: 8080, name: web}]
        readinessProbe: {tcpSocket: {port: web}, periodSeconds: 1}
`, namespace, ProbeImage)
	service("rolling", "app: rolling", "  ports: [{port: 80, targetPort: web}]")
	return b.String()
}

// Work runs the pods and Services, and clients in and outside the cluster.
func (c *Cluster) Work() error {
	if _, err := c.Kubectl(c.workload(), "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := c.Kubectl("", "-n", namespace, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=180s"); err != nil {
		return err
	}
	if _, err := c.Kubectl("", "-n", namespace, "rollout", "status", "deployment/rolling", "--timeout=180s"); err != nil {
		return err
	}
	for _, pod := range []string{"client-" + c.Nodes[0].Name, "client-" + c.Nodes[1].Name, "client-host"} {
		node := c.Nodes[1]
		if pod == "client-"+c.Nodes[0].Name {
			node = c.Nodes[0]
		}
		c.Clients = append(c.Clients, &Client{Name: pod, isPod: true, node: node, port: ControlPort, from: c.lab.Client()})
	}
	if err := errors.Join(c.onNode(), c.outside()); err != nil {
		return err
	}
	return c.findClients()
}

// findClients finds the clients that are pods, which have other addresses after a reboot.
func (c *Cluster) findClients() error {
	for _, client := range c.Clients {
		if !client.isPod {
			continue
		}
		var err error
		if client.addresses, err = c.podAddresses(client.Name); err != nil {
			return err
		}
		if _, err := client.Ask(Name, "localhost"); err != nil {
			return err
		}
	}
	return nil
}

// onNode starts the client that is a process of a node.
func (c *Cluster) onNode() error {
	n := c.Nodes[0]
	cmd := n.Command(context.Background(), c.options.Probe, "--ask", ":"+strconv.Itoa(nodeControlPort))
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start client of %s: %w", n.Name, err)
	}
	c.asking = append(c.asking, cmd)
	c.Clients = append(c.Clients, &Client{Name: "node", addresses: n.Addresses, node: n, port: nodeControlPort, from: c.lab.Client()})
	return nil
}

// outside starts the client that isn't in the cluster.
func (c *Cluster) outside() error {
	client := c.lab.Client()
	for i, n := range c.Nodes {
		for _, pods := range n.PodCIDRs { // it tells pods what to ask
			if err := client.Route(pods, n.Addresses[map[bool]int{true: 0, false: 1}[pods.Addr().Is4()]]); err != nil {
				return err
			}
		}
		if i > 0 {
			continue
		}
		// A load balancer's address leads to the first node.
		for k, address := range c.balanced() {
			if err := client.Route(netip.PrefixFrom(address, address.BitLen()), n.Addresses[k]); err != nil {
				return err
			}
		}
	}
	cmd := exec.Command(c.options.Probe, "--ask", ":"+strconv.Itoa(ControlPort))
	if err := client.Start(cmd); err != nil {
		return fmt.Errorf("start outside client: %w", err)
	}
	c.asking = append(c.asking, cmd)
	c.Clients = append(c.Clients, &Client{Name: "outside", addresses: client.Addresses, port: ControlPort, from: client})
	return nil
}

// balanced are addresses that stand for a load balancer's.
func (c *Cluster) balanced() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("172.31.0.1"), netip.MustParseAddr("fd00:172:31::1")}
}

// balance gives a Service these addresses, as a cloud's load balancer does.
func (c *Cluster) balance() error {
	at := c.balanced()
	status := fmt.Sprintf(`{"status": {"loadBalancer": {"ingress": [{"ip": "%s"}, {"ip": "%s"}]}}}`, at[0], at[1])
	_, err := c.Kubectl("", "-n", namespace, "patch", "service", "local", "--subresource=status", "--type=merge", "--patch", status)
	return err
}

// podAddresses are IPv4, then IPv6.
func (c *Cluster) podAddresses(pod string) ([]netip.Addr, error) {
	return c.addresses("pod/"+pod, "{.status.podIPs[*].ip}")
}

func (c *Cluster) serviceAddresses(service string) ([]netip.Addr, error) {
	return c.addresses("service/"+service, "{.spec.clusterIPs[*]}")
}

func (c *Cluster) addresses(object, path string) ([]netip.Addr, error) {
	out, err := c.Kubectl("", "-n", namespace, "get", object, "-o", "jsonpath="+path)
	if err != nil {
		return nil, err
	}
	var list []netip.Addr
	for _, text := range strings.Fields(out) {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("address of %s: %w", object, err)
		}
		list = append(list, address)
	}
	if len(list) != 2 || !list[0].Is4() {
		return nil, fmt.Errorf("%s has the addresses %v: want IPv4, then IPv6", object, list)
	}
	return list, nil
}
