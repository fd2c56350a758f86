package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/dns"
)

// servicePort is the DNS Service's, which the server has on this node too.
const servicePort = 53

// start brings the server up. It tries for as long as somebody else has a port.
func (n *names) start(ctx context.Context) error {
	listen, err := n.listen()
	if err != nil {
		return err
	}
	config, err := n.config.Server(n.index, listen, n.config.Addresses, n.guard(), n.log)
	if err != nil {
		return err
	}
	config.Local = n.local()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 15*time.Second) {
		if n.server, err = dns.Start(config); err == nil {
			n.log.Info("DNS started", "zone", n.config.Zone, "at", fmt.Sprint(listen))
			return nil
		}
		n.log.Warn("trying again", "error", err, "in", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// listen are the addresses for this node's questions and for those of others.
func (n *names) listen() (list []netip.AddrPort, err error) {
	if n.lease != nil {
		for _, a := range n.lease.Addresses() {
			list = append(list, netip.AddrPortFrom(a, servicePort))
		}
	}
	if n.config.Port == 0 {
		return list, nil
	}
	all, _, err := localAddresses()
	if err != nil {
		return nil, err
	}
	n.node = primaryAddresses(all)
	for _, a := range n.node {
		list = append(list, netip.AddrPortFrom(a, n.config.Port))
	}
	if len(list) == 0 {
		return nil, errors.New("serve DNS: this machine has no address but the loopback's, and no nftables")
	}
	return list, nil
}

// local are the addresses that stand for the Service's on this node.
func (n *names) local() map[netip.Addr]netip.Addr {
	if n.lease == nil {
		return nil
	}
	stands := map[netip.Addr]netip.Addr{}
	for i, a := range n.lease.Addresses() {
		stands[n.config.Addresses[i]] = a
	}
	return stands
}

// at is where this node's server is asked how it is: as pods ask it.
func (n *names) at() netip.AddrPort {
	if n.lease != nil {
		return netip.AddrPortFrom(n.lease.Addresses()[0], servicePort)
	}
	return netip.AddrPortFrom(n.node[0], n.config.Port)
}

// guard keeps strangers from the port at the node's address: who has a public
// address, and isn't known to be of the cluster.
func (n *names) guard() dns.Guard {
	g := dns.Guard{Port: n.config.Port, Clients: n.config.Clients}
	if len(g.Clients) == 0 {
		g.Clients = append(dns.PrivateNetworks(), n.agent.config.Compile.Pods.Prefixes...)
	}
	for _, a := range n.node { // it asks itself how it is
		g.Clients = append(g.Clients, netip.PrefixFrom(a, a.BitLen()))
	}
	return g
}
