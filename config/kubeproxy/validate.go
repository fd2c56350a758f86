package kubeproxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/model"
)

// complaints collects what is wrong, each with the name of its field.
type complaints []error

func (list *complaints) add(ok bool, field string, value any, reason string) {
	if !ok {
		*list = append(*list, fmt.Errorf("%s: %v %s", field, value, reason))
	}
}

func (list *complaints) err(field string, err error) {
	if err != nil {
		*list = append(*list, fmt.Errorf("%s: %w", field, err))
	}
}

// maxInterface is the longest name of an interface (linux/if.h: IFNAMSIZ less
// the final zero).
const maxInterface = 15

// Validate says what of c makes no sense, field by field.
func Validate(c *Configuration) error {
	var wrong complaints
	wrong.err("mode", checkMode(string(c.Mode)))
	wrong.addresses(c)
	wrong.periods(c)
	wrong.conntrack(c)
	wrong.local(c)
	_, err := compile.ParseNodePortAddresses(c.NodePortAddresses)
	wrong.err("nodePortAddresses", err)
	if c.OOMScoreAdj != nil {
		wrong.add(*c.OOMScoreAdj >= -1000 && *c.OOMScoreAdj <= 1000, "oomScoreAdj", *c.OOMScoreAdj, "must be between -1000 and 1000")
	}
	for field, bit := range map[string]*int32{"iptables.masqueradeBit": c.IPTables.MasqueradeBit, "nftables.masqueradeBit": c.NFTables.MasqueradeBit} {
		if bit != nil {
			wrong.add(*bit >= 0 && *bit <= 31, field, *bit, "must be between 0 and 31")
		}
	}
	scheduler := model.Scheduler(c.IPVS.Scheduler)
	wrong.add(scheduler == "" || slices.Contains(model.Schedulers(), scheduler), "ipvs.scheduler", strconv.Quote(c.IPVS.Scheduler),
		fmt.Sprintf("must be one of %v", model.Schedulers()))
	for _, text := range c.IPVS.ExcludeCIDRs {
		_, err := netip.ParsePrefix(text)
		wrong.add(err == nil, "ipvs.excludeCIDRs", strconv.Quote(text), "is not a CIDR such as 10.96.0.0/16")
	}
	wrong.add(c.ClientConnection.Burst >= 0, "clientConnection.burst", c.ClientConnection.Burst, "must not be negative")
	wrong.add(slices.Contains([]string{"", "text", "json"}, c.Logging.Format), "logging.format", strconv.Quote(c.Logging.Format), "must be text or json")
	return errors.Join(wrong...)
}

func checkMode(mode string) error {
	if mode == "" || mode == agent.AutoMode {
		return nil
	}
	_, err := dataplane.Find(mode)
	return err
}

func (list *complaints) addresses(c *Configuration) {
	if c.BindAddress != "" {
		_, err := netip.ParseAddr(c.BindAddress)
		list.add(err == nil, "bindAddress", strconv.Quote(c.BindAddress), "is not an IP address")
	}
	for field, address := range map[string]string{"healthzBindAddress": c.HealthzBindAddress, "metricsBindAddress": c.MetricsBindAddress} {
		if address == "" {
			continue
		}
		host, port, err := net.SplitHostPort(address)
		if err == nil && host != "" { // ":10256" is all addresses
			_, err = netip.ParseAddr(host)
		}
		n, portErr := strconv.ParseUint(port, 10, 16)
		list.add(err == nil && portErr == nil && n > 0, field, strconv.Quote(address), "is not an IP address and port such as 0.0.0.0:10256")
	}
}

func (list *complaints) periods(c *Configuration) {
	for _, p := range []struct {
		of        string
		sync, min time.Duration
	}{
		{"iptables", c.IPTables.SyncPeriod.Duration, c.IPTables.MinSyncPeriod.Duration},
		{"ipvs", c.IPVS.SyncPeriod.Duration, c.IPVS.MinSyncPeriod.Duration},
		{"nftables", c.NFTables.SyncPeriod.Duration, c.NFTables.MinSyncPeriod.Duration},
	} {
		list.add(p.sync >= 0, p.of+".syncPeriod", p.sync, "must be greater than 0")
		list.add(p.min >= 0, p.of+".minSyncPeriod", p.min, "must not be negative")
		list.add(p.sync == 0 || p.min <= p.sync, p.of+".syncPeriod", p.sync, "must not be less than "+p.of+".minSyncPeriod")
	}
	for field, d := range map[string]time.Duration{
		"ipvs.tcpTimeout": c.IPVS.TCPTimeout.Duration, "ipvs.tcpFinTimeout": c.IPVS.TCPFinTimeout.Duration,
		"ipvs.udpTimeout": c.IPVS.UDPTimeout.Duration, "configSyncPeriod": c.ConfigSyncPeriod.Duration,
	} {
		list.add(d >= 0, field, d, "must not be negative")
	}
}

func (list *complaints) conntrack(c *Configuration) {
	k := &c.Conntrack
	for field, n := range map[string]*int32{"conntrack.maxPerCore": k.MaxPerCore, "conntrack.min": k.Min} {
		if n != nil {
			list.add(*n >= 0, field, *n, "must not be negative")
		}
	}
	durations := map[string]time.Duration{"conntrack.udpTimeout": k.UDPTimeout.Duration, "conntrack.udpStreamTimeout": k.UDPStreamTimeout.Duration}
	if k.TCPEstablishedTimeout != nil {
		durations["conntrack.tcpEstablishedTimeout"] = k.TCPEstablishedTimeout.Duration
	}
	if k.TCPCloseWaitTimeout != nil {
		durations["conntrack.tcpCloseWaitTimeout"] = k.TCPCloseWaitTimeout.Duration
	}
	for field, d := range durations {
		list.add(d >= 0, field, d, "must not be negative")
	}
}

func (list *complaints) local(c *Configuration) {
	modes := []string{"", clusterCIDR, nodeCIDR, bridgeInterface, interfaceNamePrefix}
	list.add(slices.Contains(modes, string(c.DetectLocalMode)), "detectLocalMode", strconv.Quote(string(c.DetectLocalMode)),
		"must be one of "+strings.Join(modes[1:], ", "))
	bridge, prefix := c.DetectLocal.BridgeInterface, c.DetectLocal.InterfaceNamePrefix
	list.add(c.DetectLocalMode != bridgeInterface || bridge != "", "detectLocal.bridgeInterface", `""`, "must not be empty with this detectLocalMode")
	list.add(c.DetectLocalMode != interfaceNamePrefix || prefix != "", "detectLocal.interfaceNamePrefix", `""`, "must not be empty with this detectLocalMode")
	list.add(len(bridge) <= maxInterface, "detectLocal.bridgeInterface", bridge, "is longer than a name of an interface can be")
	list.add(len(prefix) <= maxInterface, "detectLocal.interfaceNamePrefix", prefix, "is longer than a name of an interface can be")
	prefixes, err := cidrs(c.ClusterCIDR)
	list.err("clusterCIDR", err)
	dual := len(prefixes) == 2 && prefixes[0].Addr().Is4() != prefixes[1].Addr().Is4()
	list.add(len(prefixes) <= 1 || dual, "clusterCIDR", strconv.Quote(c.ClusterCIDR), "must be one range, or one of each IP family")
}

// cidrs reads ranges with commas between them; "" is none.
func cidrs(text string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, fmt.Errorf("%q is not a CIDR such as 10.244.0.0/16", part)
		}
		list = append(list, p.Masked())
	}
	return list, nil
}
