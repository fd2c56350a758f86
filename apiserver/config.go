// Package apiserver is the embedded Kubernetes API: the kinds that Services
// need, with the behaviour that kubectl and client-go expect, on
// k8s.io/apiserver and etcd. Several servers may run in one process.
package apiserver

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/fairway-net/fairway/apiserver/registry"
	"github.com/fairway-net/fairway/kube/credentials"
)

// Config says what a server serves and where.
type Config struct {
	// DataDir holds certificates, the admin kubeconfig and, unless
	// EtcdServers are given, the embedded etcd.
	DataDir string
	// BindAddress and Port are where the API is served. Port 0 picks a free
	// one.
	BindAddress netip.Addr
	Port        int
	// AdvertiseAddress is where other machines and Pods reach the server; the
	// default is BindAddress, or, if that is unspecified, an address of this
	// machine.
	AdvertiseAddress netip.Addr
	// ExtraSANs are further names and addresses for the serving certificate.
	ExtraSANs []string
	// ServiceCIDRs are one range of cluster IPs, or one of each family.
	ServiceCIDRs []netip.Prefix
	// ClusterDNS is the address of the Service kube-system/kube-dns, which is
	// made if it isn't there; the zero value makes none.
	ClusterDNS netip.Addr
	// NodePortRange is where node ports come from.
	NodePortRange utilnet.PortRange
	// EtcdServers are the URLs of an existing etcd to use instead of the
	// embedded one. Several servers may use one; for a client to reach them
	// all with the same kubeconfig, they need the same pki/ca.crt and
	// pki/ca.key in their data directories.
	EtcdServers []string
	// EtcdPrefix is put before every key in EtcdServers, for a store that has
	// others' keys too.
	EtcdPrefix string
	// EtcdCAFile, EtcdCertFile and EtcdKeyFile secure the connection to it.
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	// ClusterInit makes this server the first of several. One that was alone
	// until now keeps what it has stored.
	ClusterInit bool
	// Join is the URL of any server of a cluster that this one shall join, with
	// a server token. Both are heeded until it has joined.
	Join, Token string
	// ServerName tells the servers of a cluster apart; the default is the host's
	// name.
	ServerName string
	// PeerPort is where the servers of a cluster reach each other's etcd, at
	// BindAddress and AdvertiseAddress.
	PeerPort int
	// NodeGrace is how long a machine may be silent before the controllers of
	// this server mark it as not ready.
	NodeGrace time.Duration
	// GatewayMachines are the Nodes whose machines may serve Gateways, and so read the
	// keys of their certificates; AllMachines stands for all.
	GatewayMachines []string
	// Kubelet answers for what runs in Pods; "" if nothing runs them.
	Kubelet registry.Kubelet
	// AgentSocket is the path of the socket of a node's agent on this machine, "" for
	// nodes elsewhere; nil if all are elsewhere.
	AgentSocket func(node string) string `json:"-"`
	// TokenFile lists bearer tokens in Kubernetes' static token format:
	// token,user,uid,"group1,group2".
	TokenFile string
	// Audit says which requests are written down.
	Audit Audit
	// SnapshotInterval is how often the embedded etcd's content is saved to
	// SnapshotDir, 0 for never; SnapshotRetention is how many files are kept.
	SnapshotInterval  time.Duration
	SnapshotRetention int

	// entered says that the rest is settled: what the server is in a cluster, nil
	// if it is alone, and the members that it joins now.
	entered    bool
	membership *membership
	// noCustomResources leaves them out, and noDefinitions those that every server
	// has: for measuring what they cost.
	noCustomResources, noDefinitions bool
	initialCluster                   string
}

// AllMachines stands for every machine that has joined.
const AllMachines = "*"

// ServesGateways reports whether a Node's machine may serve Gateways.
func (c *Config) ServesGateways(node string) bool {
	return slices.Contains(c.GatewayMachines, node) || slices.Contains(c.GatewayMachines, AllMachines)
}

// DefaultConfig returns the configuration of `fairway server` without flags.
func DefaultConfig() Config {
	return Config{
		NodeGrace:     10 * time.Second,
		DataDir:       credentials.ServerDir,
		BindAddress:   netip.MustParseAddr("127.0.0.1"),
		Port:          6443,
		PeerPort:      2380,
		ServiceCIDRs:  []netip.Prefix{serviceRange4},
		NodePortRange: utilnet.PortRange{Base: 30000, Size: 2768},

		GatewayMachines: []string{AllMachines},
		Audit:           Audit{MaxSize: 100, MaxBackups: 10},

		SnapshotInterval:  12 * time.Hour,
		SnapshotRetention: 5,
	}
}

// validate refuses what can't work, naming the field.
func (c *Config) validate() error {
	switch {
	case c.DataDir == "":
		return errors.New("data directory: not given")
	case !c.BindAddress.IsValid():
		return errors.New("bind address: not given")
	case c.Port < 0 || c.Port > 65535:
		return fmt.Errorf("port %d: must be between 0 and 65535", c.Port)
	case len(c.ServiceCIDRs) == 0:
		return errors.New("service CIDR: not given")
	case len(c.ServiceCIDRs) > 2:
		return fmt.Errorf("service CIDRs %v: at most one of each IP family", c.ServiceCIDRs)
	case c.NodePortRange.Base < 1 || c.NodePortRange.Size < 1 || c.NodePortRange.Base+c.NodePortRange.Size > 65536:
		return fmt.Errorf("node port range %s: must lie between 1 and 65535", c.NodePortRange.String())
	case (c.EtcdCertFile == "") != (c.EtcdKeyFile == ""):
		return errors.New("etcd client certificate: certificate and key belong together")
	case c.EtcdPrefix != "" && len(c.EtcdServers) == 0:
		return errors.New("etcd prefix: only an existing etcd takes one")
	case c.PeerPort < 1 || c.PeerPort > 65535:
		return fmt.Errorf("peer port %d: must be between 1 and 65535", c.PeerPort)
	case c.ClusterInit && c.Join != "":
		return errors.New("a server either begins a cluster or joins one")
	case (c.ClusterInit || c.Join != "") && len(c.EtcdServers) > 0:
		return errors.New("servers on an existing etcd need no cluster of their own: start each with the same etcd servers")
	case c.SnapshotInterval < 0 || c.SnapshotInterval > 0 && c.SnapshotRetention < 1:
		return errors.New("snapshots: the interval must not be negative, and at least one must be kept")
	}
	return c.Audit.validate()
}

// openDataDir makes the data directory and takes it for this process. The lock
// ends with the process, however that ends.
func openDataDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	return lock(dir)
}
