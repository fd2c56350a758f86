package nftrace

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/nlmsg"
)

// Chains tells of the chains and rules that events name. It reads each chain once.
type Chains struct {
	bases  map[string]Base
	known  map[string]map[uint64]string
	socket *netlink.Conn
	legacy map[string]map[string]*iptables.Chain // tables of iptables-legacy, by their chains' names
}

// Base is what is known of a base chain.
type Base struct {
	Hook     string
	Priority int32
}

// ReadChains lists the base chains.
func ReadChains() (*Chains, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open nf_tables: %w", err)
	}
	list, err := conn.ListChains()
	if err != nil {
		return nil, permission("list chains", err)
	}
	c := &Chains{bases: map[string]Base{}, known: map[string]map[uint64]string{}}
	for _, one := range list {
		if one.Hooknum == nil || one.Priority == nil {
			continue
		}
		for name, hook := range hooks {
			if *hook == *one.Hooknum {
				c.bases[families[byte(one.Table.Family)]+" "+one.Table.Name+" "+one.Name] = Base{name, int32(*one.Priority)}
			}
		}
	}
	c.socket, err = netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	return c, nil
}

// Close gives up the socket.
func (c *Chains) Close() error { return c.socket.Close() }

// Base tells of a base chain; false if the chain is none.
func (c *Chains) Base(e Event) (Base, bool) {
	if e.Legacy != nil {
		return *e.Legacy, true
	}
	b, ok := c.bases[e.Family+" "+e.Table+" "+e.Chain]
	return b, ok
}

// Rule is an event's rule in words; "" if it isn't one, or it is gone. The error says
// that the chain can't be read. Of a policy of iptables-legacy it is the verdict.
func (c *Chains) Rule(e Event) (string, error) {
	if e.Legacy != nil {
		return c.legacyRule(e)
	}
	if e.Handle == 0 {
		return "", nil
	}
	name := e.Family + " " + e.Table + " " + e.Chain
	rules, known := c.known[name]
	if !known {
		var err error
		if rules, err = c.read(e); err != nil {
			return "", fmt.Errorf("read chain %s: %w", name, err)
		}
		c.known[name] = rules
	}
	return rules[e.Handle], nil
}

// read reads the rules of an event's chain in words, by their handles.
func (c *Chains) read(e Event) (map[uint64]string, error) {
	var number byte
	for n, name := range families {
		if name == e.Family {
			number = n
		}
	}
	filter, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_RULE_TABLE, Data: append([]byte(e.Table), 0)},
		{Type: unix.NFTA_RULE_CHAIN, Data: append([]byte(e.Chain), 0)},
	})
	if err != nil {
		return nil, err
	}
	messages, err := c.socket.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE, Flags: netlink.Request | netlink.Dump},
		Data:   append([]byte{number, unix.NFNETLINK_V0, 0, 0}, filter...),
	})
	rules := map[uint64]string{}
	if errors.Is(err, unix.ENOENT) {
		return rules, nil // the chain is gone
	}
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if len(m.Data) < 4 {
			continue
		}
		a := nlmsg.Attributes(m.Data[4:])
		rules[a.Uint64(unix.NFTA_RULE_HANDLE)] = ruleText(number, a)
	}
	return rules, nil
}

// ruleText is a rule in the words of iptables if it is one of iptables, else of nft.
func ruleText(family byte, a nlmsg.Attributes) string {
	switch family {
	case unix.NFPROTO_IPV4:
		if text, ok := iptables.RuleText(iptables.IPv4, a); ok {
			return text
		}
	case unix.NFPROTO_IPV6:
		if text, ok := iptables.RuleText(iptables.IPv6, a); ok {
			return text
		}
	}
	return describe(a)
}
