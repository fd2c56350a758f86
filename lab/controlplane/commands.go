package controlplane

import "fmt"

// Where etcd listens, within the underlay's namespace.
const (
	etcdClients = "http://127.0.0.1:2379"
	etcdPeers   = "http://127.0.0.1:2380"
)

// etcd is one member that forgets with its machine.
func (o Options) etcd() []string {
	return []string{
		"--name=lab", "--data-dir=" + o.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + etcdClients, "--advertise-client-urls=" + etcdClients,
		"--listen-peer-urls=" + etcdPeers, "--initial-advertise-peer-urls=" + etcdPeers, "--initial-cluster=lab=" + etcdPeers,
	}
}

// apiServer is what kubeadm gives kube-apiserver, without aggregation.
func (o Options) apiServer() []string {
	return []string{
		"--etcd-servers=" + etcdClients,
		fmt.Sprintf("--secure-port=%d", Port), "--bind-address=::", "--advertise-address=" + o.Addresses[0].String(),
		"--tls-cert-file=" + o.file("apiserver.crt"), "--tls-private-key-file=" + o.file("apiserver.key"),
		"--client-ca-file=" + o.file("ca.crt"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=" + texts(o.ServiceCIDRs),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + o.file("accounts.crt"), "--service-account-signing-key-file=" + o.file("accounts.key"),
		"--audit-policy-file=" + o.file("audit-policy.yaml"), "--audit-log-path=" + o.AuditLog(), "--audit-log-mode=blocking",
		"--allow-privileged", "--profiling=false",
	}
}

// controllerManager has all controllers but those that need a cloud; the lab
// gives out the nodes' pod ranges itself.
func (o Options) controllerManager() []string {
	kubeconfig := o.file("controller-manager.kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--cert-dir=" + o.file("controller-manager"), "--leader-elect=false", "--profiling=false",
		"--use-service-account-credentials", "--root-ca-file=" + o.file("ca.crt"),
		"--service-account-private-key-file=" + o.file("accounts.key"),
		"--allocate-node-cidrs=false", "--service-cluster-ip-range=" + texts(o.ServiceCIDRs),
	}
}
