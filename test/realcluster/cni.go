package realcluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// CNI is how pods are connected.
type CNI string

// The ways that a cluster can be made with. Flannel's packets go through a tunnel or by
// the nodes' routes; its pods are on a bridge. (Flannel's own CNI plugin, which isn't used,
// only calls the plugin bridge.)
const (
	Bridge        CNI = "bridge"
	PTP           CNI = "ptp"
	FlannelVXLAN  CNI = "flannel-vxlan"
	FlannelHostGW CNI = "flannel-host-gw"
)

// CNIs are all of them.
var CNIs = []CNI{Bridge, PTP, FlannelVXLAN, FlannelHostGW}

func (k CNI) isFlannel() bool { return k == FlannelVXLAN || k == FlannelHostGW }

// config is the CNI's on a node, and host ports.
func (k CNI) config(pods []netip.Prefix) string {
	const bridge = `{"type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true, "hairpinMode": true, "mtu": %[3]d,`
	first, routes, mtu := bridge, "", 1500
	switch k {
	case PTP:
		first, routes = `{"type": "ptp", "mtu": %[3]d,`, `, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]`
	case FlannelVXLAN:
		mtu = 1430 // a header of IPv6 around the packet
	}
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [`+first+`
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "%[1]s"}], [{"subnet": "%[2]s"}]]%[4]s}},
{"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}]}
`, pods[0], pods[1], mtu, routes)
}

// flannelImage is the image of flanneld.
const flannelImage = "fairway.test/flannel:1"

func (c *Cluster) flannelImage(debian string) image {
	return image{Names: []string{flannelImage}, Folder: debian, Entrypoint: []string{"/opt/bin/flanneld"},
		Programs: map[string]string{"opt/bin/flanneld": filepath.Join(filepath.Dir(c.options.Fairway), "flanneld")}}
}

// flannel has flanneld connect the nodes, as its documents say.
func (c *Cluster) flannel() error {
	for _, n := range c.Nodes {
		ranges := fmt.Sprintf(`{"spec": {"podCIDR": "%[1]s", "podCIDRs": ["%[1]s", "%[2]s"]}}`, n.PodCIDRs[0], n.PodCIDRs[1])
		if _, err := c.Kubectl("", "patch", "node", n.Name, "--patch", ranges); err != nil {
			return err
		}
		if err := n.forgetPods(c.Nodes); err != nil {
			return fmt.Errorf("remove routes of %s: %w", n.Name, err)
		}
	}
	backend := map[CNI]string{FlannelVXLAN: "vxlan", FlannelHostGW: "host-gw"}[c.options.CNI]
	if _, err := c.Kubectl(fmt.Sprintf(flannelManifest, pods4, pods6, backend, flannelImage), "apply", "-f", "-"); err != nil {
		return err
	}
	return c.RolledOut("kube-flannel", "daemonset/kube-flannel-ds")
}

// forgetPods removes the lab's routes to other nodes' pods.
func (n *Node) forgetPods(nodes []*Node) error {
	handle, err := n.NS.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer handle.Close()
	var errs []error
	for _, other := range nodes {
		for _, pods := range other.PodCIDRs {
			if other == n {
				continue
			}
			to := &net.IPNet{IP: pods.Addr().AsSlice(), Mask: net.CIDRMask(pods.Bits(), pods.Addr().BitLen())}
			if err := handle.RouteDel(&netlink.Route{Dst: to}); err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("route to %s: %w", pods, err))
			}
		}
	}
	return errors.Join(errs...)
}

const flannelManifest = `
apiVersion: v1
kind: Namespace
metadata: {name: kube-flannel, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: flannel, namespace: kube-flannel}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: flannel}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get]}
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [nodes/status], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: flannel}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: flannel}
subjects: [{kind: ServiceAccount, name: flannel, namespace: kube-flannel}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-flannel-cfg, namespace: kube-flannel}
data:
  net-conf.json: '{"Network": "%[1]s", "EnableIPv6": true, "IPv6Network": "%[2]s", "Backend": {"Type": "%[3]s"}}'
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-flannel-ds, namespace: kube-flannel}
spec:
  selector: {matchLabels: {app: flannel}}
  template:
    metadata: {labels: {app: flannel}}
    spec:
      hostNetwork: true
      priorityClassName: system-node-critical
      serviceAccountName: flannel
      tolerations: [{operator: Exists}]
      containers:
      - name: kube-flannel
        image: %[4]s
        imagePullPolicy: Never
        args: [--ip-masq, --kube-subnet-mgr, --healthz-port=8471]
        readinessProbe: {httpGet: {path: /readyz, port: 8471}, periodSeconds: 1}
        securityContext: {capabilities: {add: [NET_ADMIN, NET_RAW]}}
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        volumeMounts:
        - {name: run, mountPath: /run/flannel}
        - {name: configuration, mountPath: /etc/kube-flannel}
        - {name: lock, mountPath: /run/xtables.lock}
      volumes:
      - {name: run, hostPath: {path: /run/flannel, type: DirectoryOrCreate}}
      - {name: configuration, configMap: {name: kube-flannel-cfg}}
      - {name: lock, hostPath: {path: /run/xtables.lock, type: FileOrCreate}}
`
