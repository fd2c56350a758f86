// Package apiserver is the embedded Kubernetes API: the kinds that Services
// need, with the behaviour that kubectl and client-go expect, on
// k8s.io/apiserver and etcd. Several servers may run in one process.
package apiserver

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	utilnet "k8s.io/apimachinery/pkg/util/net"
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
	// EtcdCAFile, EtcdCertFile and EtcdKeyFile secure the connection to it.
	EtcdCAFile, EtcdCertFile, EtcdKeyFile string
	// TokenFile lists bearer tokens in Kubernetes' static token format:
	// token,user,uid,"group1,group2".
	TokenFile string
}

// DefaultConfig returns the configuration of `fairway server` without flags.
func DefaultConfig() Config {
	return Config{
		DataDir:       "/var/lib/fairway",
		BindAddress:   netip.MustParseAddr("127.0.0.1"),
		Port:          6443,
		ServiceCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		NodePortRange: utilnet.PortRange{Base: 30000, Size: 2768},
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
	}
	return nil
}

// openDataDir makes the data directory and takes it for this process. The lock
// ends with the process, however that ends.
func openDataDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	return lock(dir)
}
