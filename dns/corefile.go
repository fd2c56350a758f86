package dns

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

// CorefileConfig is what the default Corefile is made of.
type CorefileConfig struct {
	// Listen are the addresses and ports to answer at.
	Listen []netip.AddrPort
	// Upstreams answer for all other names: addresses, or files in the format
	// of resolv.conf. Without any, other names are refused.
	Upstreams []string
	// Guard says who may ask at one of the ports.
	Guard Guard
	// Metrics is where metrics are served, as host:port; "" serves none.
	Metrics string
	// Health is where /health is served, as host:port; "" serves none.
	Health string
}

// Guard limits who may ask at a port to some networks.
type Guard struct {
	Port    uint16 // 0 limits nothing
	Clients []netip.Prefix
}

// PrivateNetworks are those whose addresses nobody on the Internet has: RFC
// 1918, RFC 6598, RFC 4193, and loopback and link-local ones.
func PrivateNetworks() []netip.Prefix {
	var list []netip.Prefix
	for _, text := range []string{
		"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
		"fc00::/7", "fe80::/10", "::1/128",
	} {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// CacheCapacity bounds how many answers of upstreams are kept, positive and
// negative ones each.
const CacheCapacity = 8192

// Corefile writes the default Corefile: one block of plugins, for each address.
func Corefile(c CorefileConfig) string {
	var b strings.Builder
	// Upstreams that fail do so for every question.
	b.WriteString("(cluster) {\n\terrors {\n\t\tconsolidate 1m . warning show_first\n\t}\n")
	if c.Metrics != "" {
		fmt.Fprintf(&b, "\tprometheus %s\n", c.Metrics)
	}
	b.WriteString("\tbufsize 1232\n\tautopath @" + pluginName + "\n\t" + pluginName + "\n")
	if len(c.Upstreams) > 0 {
		// Stale answers are for when upstreams fail: they are asked first, for
		// as long as RFC 8767 (section 5) has clients wait.
		fmt.Fprintf(&b, "\tcache 30 {\n\t\tsuccess %d\n\t\tdenial %d\n\t\tserve_stale 1h verify 1800ms 30s 30s\n\t}\n", CacheCapacity, CacheCapacity)
		fmt.Fprintf(&b, "\tforward . %s {\n\t\tmax_concurrent 1000\n\t}\n", strings.Join(c.Upstreams, " "))
	}
	b.WriteString("}\n")
	byPort := map[uint16][]string{}
	for _, l := range c.Listen {
		byPort[l.Port()] = append(byPort[l.Port()], l.Addr().String())
	}
	var ports []uint16
	for p := range byPort {
		ports = append(ports, p)
	}
	slices.Sort(ports)
	for i, p := range ports {
		b.WriteString(".:" + strconv.Itoa(int(p)) + " {\n\timport cluster\n")
		if !slices.Contains(byPort[p], netip.IPv6Unspecified().String()) { // that is everywhere
			b.WriteString("\tbind " + strings.Join(byPort[p], " ") + "\n")
		}
		if p == c.Guard.Port {
			b.WriteString("\tacl {\n\t\tallow net")
			for _, n := range c.Guard.Clients {
				b.WriteString(" " + n.String())
			}
			b.WriteString("\n\t\tblock\n\t}\n")
		}
		if i == 0 && c.Health != "" {
			fmt.Fprintf(&b, "\thealth %s\n", c.Health)
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// Upstreams reads the name servers of a resolv.conf, without those that are
// this server itself: a machine may well have been told to use it.
func Upstreams(path string, own []netip.Addr) ([]string, error) {
	config, err := dns.ClientConfigFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("read upstream servers from %s: %w", path, err)
	}
	var list []string
	for _, text := range config.Servers {
		a, err := netip.ParseAddr(text)
		if err != nil || slices.Contains(own, a.Unmap().WithZone("")) {
			continue
		}
		list = append(list, text)
	}
	return list, nil
}
