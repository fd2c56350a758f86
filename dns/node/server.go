package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairway-net/fairway/dns"
)

// servicePort is the DNS Service's, which the server has on this node too.
const servicePort = 53

// start brings the server up. It tries for as long as somebody else has a port.
func (n *DNS) start(ctx context.Context) error {
	listen, err := n.listen()
	if err != nil {
		return err
	}
	config, err := n.Server(n.Index, listen, n.Addresses, n.guard(), n.Log)
	if err != nil {
		return err
	}
	config.Local = n.local()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 15*time.Second) {
		if n.server, err = dns.Start(config); err == nil {
			n.Log.Info("DNS started", "zone", n.Zone, "address", fmt.Sprint(listen))
			return nil
		}
		n.Log.Warn("DNS could not be started; trying again", "error", err, "retry-in", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// listen are the addresses for this node's questions and for those of others.
func (n *DNS) listen() (list []netip.AddrPort, err error) {
	if n.lease != nil {
		for _, a := range n.lease.Addresses() {
			list = append(list, netip.AddrPortFrom(a, servicePort))
		}
	}
	if n.Port == 0 {
		return list, nil
	}
	if n.node, err = n.OwnAddresses(); err != nil {
		return nil, err
	}
	for _, a := range n.node {
		list = append(list, netip.AddrPortFrom(a, n.Port))
	}
	if len(list) == 0 {
		return nil, errors.New("serve DNS: this machine has no address but the loopback's, and no nftables")
	}
	return list, nil
}

// local are the addresses that stand for the Service's on this node.
func (n *DNS) local() map[netip.Addr]netip.Addr {
	if n.lease == nil {
		return nil
	}
	stands := map[netip.Addr]netip.Addr{}
	for i, a := range n.lease.Addresses() {
		stands[n.Addresses[i]] = a
	}
	return stands
}

// at is where this node's server is asked how it is: as pods ask it.
func (n *DNS) at() netip.AddrPort {
	if n.lease != nil {
		return netip.AddrPortFrom(n.lease.Addresses()[0], servicePort)
	}
	return netip.AddrPortFrom(n.node[0], n.Port)
}

// guard keeps strangers from the port at the node's address: clients with a public
// address that isn't known to be of the cluster.
func (n *DNS) guard() dns.Guard {
	g := dns.Guard{Port: n.Port, Clients: slices.Clone(n.Clients)}
	if len(g.Clients) == 0 {
		g.Clients = append(dns.PrivateNetworks(), n.PodRanges...)
	}
	for _, a := range n.node { // it asks itself how it is
		g.Clients = append(g.Clients, netip.PrefixFrom(a, a.BitLen()))
	}
	return g
}

// clients are the networks that may ask at the Service's address. Where it isn't known which
// addresses pods have, some of them may have public ones, and everybody may.
func (n *DNS) clients() []netip.Prefix {
	if len(n.Clients)+len(n.PodRanges) == 0 {
		return nil
	}
	return n.guard().Clients
}
