package realcluster

import (
	"fmt"
	"net/netip"
)

// Ranges of the cluster: pods' and nodes' are the lab's.
const (
	pods4, pods6         = "10.244.0.0/16", "fd00:10:244::/56"
	nodes4, nodes6       = "172.30.0.0/16", "fd00:172:30::/64"
	services4, services6 = "10.96.0.0/16", "fd00:10:96::/112"
)

// token joins nodes. The cluster can be reached from nowhere but its own network.
const token = "abcdef.0123456789abcdef"

// containerdConfig: without the rest that only warns where it lacks something.
const containerdConfig = `version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "%s"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/etc/cni/net.d"
`

// initConfig is what kubeadm init reads.
func (n *Node) initConfig(version, mode string) string {
	return fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{token: %s}]
localAPIEndpoint: {advertiseAddress: %s}
%s---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v%s
networking: {podSubnet: "%s,%s", serviceSubnet: "%s,%s"}
controllerManager:
  extraArgs: [{name: allocate-node-cidrs, value: "false"}] # the CNI's configuration has them
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
syncFrequency: 5s # how soon pods see a changed ConfigMap; a minute by default
# The disk is the machine's.
evictionHard: {memory.available: 10Mi, nodefs.available: 0%%, nodefs.inodesFree: 0%%, imagefs.available: 0%%}
imageGCHighThresholdPercent: 100
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
clusterCIDR: %s,%s
conntrack: {maxPerCore: 0} # that is the machine's
`, token, n.IPv4(), n.registration(), version, pods4, pods6, services4, services6, mode, pods4, pods6)
}

// joinConfig is what kubeadm join reads.
func (n *Node) joinConfig(server netip.Addr) string {
	return fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {bootstrapToken: {token: %s, apiServerEndpoint: "%s:6443", unsafeSkipCAVerification: true}}
%s`, token, server, n.registration())
}

func (n *Node) registration() string {
	return fmt.Sprintf(`nodeRegistration:
  name: %s
  criSocket: unix:///run/containerd/containerd.sock
  imagePullPolicy: Never
  taints: [] # the control plane runs pods, too
  kubeletExtraArgs: [{name: node-ip, value: "%s,%s"}]
`, n.Name, n.IPv4(), n.IPv6())
}
