package apiserver

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/apiserver/pki"
	"github.com/fairway-net/fairway/apiserver/storage"
)

// The ranges of cluster IPs, one for each family, that a new cluster takes if it is
// told none.
var (
	serviceRange4 = netip.MustParsePrefix("10.96.0.0/16")
	serviceRange6 = netip.MustParsePrefix("fd00:10:96::/112")
)

// Families is what the ranges of a new cluster follow from.
type Families struct {
	// LoadBalancers are addresses of the load balancer ranges, one of each.
	LoadBalancers []netip.Addr
	// Machine are the addresses by which this machine reaches others.
	Machine []netip.Addr
}

// SettleServiceCIDRs settles the ranges of cluster IPs. Ranges that were given stand. A
// cluster that there is keeps those of its last start; a new one gets a range of each
// family that the machine or the load balancer ranges have, first that of the advertise
// address. The choice is remembered in the data directory. Servers on an existing etcd
// and those that join one of several don't choose.
func (c *Config) SettleServiceCIDRs(given bool, of Families) error {
	if len(c.EtcdServers) > 0 || c.Join != "" {
		return nil
	}
	m, err := readMembership(c.DataDir)
	if err != nil || m != nil {
		return err
	}
	if !given {
		stored := storage.HasStore(c.etcdDir())
		ranges, err := c.readServiceCIDRs()
		switch {
		case err != nil:
			return err
		case !stored:
			at, err := c.advertised()
			if err != nil {
				return err
			}
			c.ServiceCIDRs = defaultServiceCIDRs(at, of)
		case len(ranges) > 0:
			c.ServiceCIDRs = ranges
		}
	}
	var text []string
	for _, p := range c.ServiceCIDRs {
		text = append(text, p.String())
	}
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	if err := pki.WriteFile(c.serviceCIDRFile(), []byte(strings.Join(text, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("remember the ranges of cluster IPs: %w", err)
	}
	return nil
}

func (c *Config) serviceCIDRFile() string { return filepath.Join(c.DataDir, "service-cidrs") }

// readServiceCIDRs are the ranges of the last start; none if nothing is remembered.
func (c *Config) readServiceCIDRs() (ranges []netip.Prefix, err error) {
	data, err := os.ReadFile(c.serviceCIDRFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the ranges of cluster IPs: %w", err)
	}
	for line := range strings.FieldsSeq(string(data)) {
		p, err := netip.ParsePrefix(line)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", c.serviceCIDRFile(), err)
		}
		ranges = append(ranges, p)
	}
	return ranges, nil
}

// defaultServiceCIDRs are the ranges of a new cluster.
func defaultServiceCIDRs(advertise netip.Addr, of Families) []netip.Prefix {
	var order []netip.Addr
	if !advertise.IsLoopback() {
		order = append(order, advertise)
	}
	var ranges []netip.Prefix
	for _, a := range slices.Concat(order, of.LoadBalancers, of.Machine) {
		p := serviceRange4
		if a.Unmap().Is6() {
			p = serviceRange6
		}
		if !slices.Contains(ranges, p) {
			ranges = append(ranges, p)
		}
	}
	if len(ranges) == 0 {
		return []netip.Prefix{serviceRange4}
	}
	return ranges
}
