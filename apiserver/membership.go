package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/fairway-net/fairway/apiserver/pki"
	"github.com/fairway-net/fairway/apiserver/storage"
)

// membership is what a server of a cluster remembers of that (server.json).
type membership struct {
	Name string `json:"name"`
	// Stored says that the server's store has been in use. One whose store is
	// gone must not begin a new one.
	Stored bool `json:"stored"`
	shared
}

// shared is what all servers of a cluster have in common.
type shared struct {
	ServiceCIDRs  []netip.Prefix    `json:"serviceCIDRs"`
	NodePortRange utilnet.PortRange `json:"nodePortRange"`
	ClusterDNS    netip.Addr        `json:"clusterDNS,omitzero"`
}

func (c *Config) shared() shared {
	return shared{c.ServiceCIDRs, c.NodePortRange, c.ClusterDNS}
}

// adopt takes over what the cluster has decided. What is asked for besides must
// be the same, or the default.
func (c *Config) adopt(s shared) error {
	usual := DefaultConfig()
	switch {
	case !slices.Equal(c.ServiceCIDRs, s.ServiceCIDRs) && !slices.Equal(c.ServiceCIDRs, usual.ServiceCIDRs):
		return fmt.Errorf("service CIDR %v: the cluster's is %v; leave it out", c.ServiceCIDRs, s.ServiceCIDRs)
	case c.NodePortRange != s.NodePortRange && c.NodePortRange != usual.NodePortRange:
		return fmt.Errorf("node port range %s: the cluster's is %s; leave it out", c.NodePortRange.String(), s.NodePortRange.String())
	}
	c.ServiceCIDRs, c.NodePortRange, c.ClusterDNS = s.ServiceCIDRs, s.NodePortRange, s.ClusterDNS
	return nil
}

func membershipFile(dataDir string) string { return filepath.Join(dataDir, "server.json") }

// IsOfCluster reports whether a data directory is that of a server of a cluster.
func IsOfCluster(dataDir string) (bool, error) {
	m, err := readMembership(dataDir)
	return m != nil, err
}

// readMembership returns nil for a server that is alone.
func readMembership(dataDir string) (*membership, error) {
	data, err := os.ReadFile(membershipFile(dataDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what this server is: %w", err)
	}
	m := &membership{}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("read %s: %w; restore it from a backup of this machine (nothing was changed)", membershipFile(dataDir), err)
	}
	return m, nil
}

func (m *membership) write(dataDir string) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write what this server is: %w", err)
	}
	return pki.WriteFile(membershipFile(dataDir), append(data, '\n'), 0o600)
}

func (c *Config) etcdDir() string { return filepath.Join(c.DataDir, "etcd") }

// peerAddress is where the other servers reach this one's etcd.
func (c *Config) peerAddress() netip.AddrPort {
	return netip.AddrPortFrom(c.AdvertiseAddress, uint16(c.PeerPort))
}

// checkReachable refuses a server of a cluster that others couldn't reach.
func (c *Config) checkReachable() error {
	for _, local := range []string{"127.0.0.1", "::1"} {
		if c.AdvertiseAddress.String() == local {
			return fmt.Errorf("the servers of a cluster must reach each other, and this one is at %s: give --bind-address and --advertise-address", local)
		}
	}
	return nil
}

// member sets up this server's etcd as one of the cluster's; nil for a server
// that is alone.
func (s *Server) member() (*storage.Member, error) {
	if s.config.membership == nil {
		return nil, nil
	}
	if err := s.config.checkReachable(); err != nil {
		return nil, err
	}
	files := peerFiles(s.config.DataDir)
	if err := s.issuePeer(); err != nil {
		return nil, err
	}
	listen := netip.AddrPortFrom(s.config.BindAddress, uint16(s.config.PeerPort))
	if err := probe(listen); err != nil {
		return nil, err
	}
	return &storage.Member{
		Name: s.config.membership.Name, Listen: listen, Advertise: s.config.peerAddress(),
		Local:  slices.Contains(interfaceAddresses(), s.config.AdvertiseAddress),
		CAFile: filepath.Join(s.config.DataDir, "pki", "etcd-ca.crt"), CertFile: files.CertFile, KeyFile: files.KeyFile,
		Join: s.config.initialCluster,
	}, nil
}

// probe says who is in the way in words of its own: etcd's are many.
func probe(listen netip.AddrPort) error {
	l, err := net.Listen("tcp", listen.String())
	if err != nil {
		return fmt.Errorf("listen for other servers (another one needs another --peer-port): %w", err)
	}
	return l.Close()
}

// issuePeer issues the certificate that members of the cluster show each other.
func (s *Server) issuePeer() error {
	pair, err := s.authorities.Peer(s.config.membership.Name, []net.IP{s.config.AdvertiseAddress.AsSlice()}, nil)
	if err != nil {
		return err
	}
	return pair.WriteFile(peerFiles(s.config.DataDir).CertFile)
}

// joinAddress is how a server is named to others that join.
func joinAddress(host netip.Addr, port int) string {
	return "https://" + net.JoinHostPort(host.String(), strconv.Itoa(port))
}
