package userspace

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
)

// What backends answer to connections that have their client's address is on
// its way to the client. Three constant things lead it to the relay: a
// netfilter rule marks packets that belong to a transparent socket, a policy
// rule sends marked packets to a routing table, and in that table every address
// is local (Documentation/networking/tproxy.rst).
const (
	returnMark     = 0x8f8f
	returnTable    = 0x8f8f
	returnPriority = routeProtocol

	netfilterTable = "fairway-userspace"
	netfilterChain = "prerouting"
	netfilterRule  = "socket transparent 1 meta mark set 0x8f8f"

	// See conntrack.KeepTranslating: the kernel goes on translating connections
	// that another plane has translated, and conntrack knows the relay's
	// connections, so that a plane that takes over doesn't translate them.
	connectionsChain = "connections"
	connectionsRule  = "ct state new accept"
)

// returnHook comes after destination NAT, whose undoing for masqueraded connections gives
// packets the address that their socket has; and after others' checks of reverse paths, as
// firewalld has one (at 10), which would take the mark's table for the way back.
var returnHook = nftables.ChainPriorityRef(100)

var families = []int{netlink.FAMILY_V4, netlink.FAMILY_V6}

func addTable(c *nftables.Conn, name string) *nftables.Table {
	t := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: name})
	conntrack.AddKeeper(c, t, connectionsChain, connectionsRule)
	chain := c.AddChain(&nftables.Chain{
		Table: t, Name: netfilterChain, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: returnHook,
	})
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, UserData: []byte(netfilterRule), Exprs: []expr.Any{
		&expr.Socket{Key: expr.SocketKeyTransparent, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{1}},
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint32(returnMark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}})
	return t
}

// makeReturnPath makes sure of all of them.
func makeReturnPath() error {
	there, err := readReturnPath()
	if err != nil {
		return err
	}
	for _, family := range families {
		if !there[returnRoute(family)] {
			if err := netlink.RouteReplace(routeBack(family)); err != nil && !noFamily(err) {
				return fmt.Errorf("add %s: %w", returnRoute(family), err)
			}
		}
		if !there[returnRule(family)] {
			if err := netlink.RuleAdd(ruleBack(family)); err != nil && !errors.Is(err, unix.EEXIST) && !noFamily(err) {
				return fmt.Errorf("add %s: %w", returnRule(family), err)
			}
		}
	}
	if there[netfilterObject()] && there[connectionsObject()] {
		return nil
	}
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("add nftables table %s: %w", netfilterTable, err)
	}
	// Anew, whatever is left of it; the first line lets the second succeed.
	c.DelTable(c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: netfilterTable}))
	addTable(c, netfilterTable)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("add nftables table %s: %w", netfilterTable, err)
	}
	return nil
}

// removeReturnPath takes all of them away, as far as they are there.
func removeReturnPath() error {
	var failed []error
	for _, family := range families {
		if err := netlink.RuleDel(ruleBack(family)); err != nil && !absent(err) {
			failed = append(failed, fmt.Errorf("delete %s: %w", returnRule(family), err))
		}
		if err := netlink.RouteDel(routeBack(family)); err != nil && !absent(err) {
			failed = append(failed, fmt.Errorf("delete %s: %w", returnRoute(family), err))
		}
	}
	table, err := findTable()
	if err != nil || table == nil {
		return errors.Join(append(failed, err)...)
	}
	c, err := nftables.New()
	if err == nil {
		c.DelTable(table)
		err = c.Flush()
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		failed = append(failed, fmt.Errorf("delete nftables table %s: %w", netfilterTable, err))
	}
	return errors.Join(failed...)
}

// absent reports whether the kernel says that a route, a rule or all of their
// family isn't there.
func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || noFamily(err)
}

// noFamily reports whether the kernel says that it has no such IP family: not
// built in or switched off when it started (EAFNOSUPPORT, EOPNOTSUPP), or
// switched off since (disable_ipv6: EACCES).
func noFamily(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES)
}

// findTable is our table; nil if there is none, or no nf_tables.
func findTable() (*nftables.Table, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("list nftables tables: %w", err)
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil && !unsupported(err) {
		return nil, fmt.Errorf("list nftables tables: %w", err)
	}
	for _, t := range tables {
		if t.Name == netfilterTable {
			return t, nil
		}
	}
	return nil, nil
}

// unsupported reports whether netlink says that there is no nf_tables, or not
// for us.
func unsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM)
}

// readReturnPath finds which of them there are.
func readReturnPath() (map[kernel.Object]bool, error) {
	there := map[kernel.Object]bool{}
	for _, family := range families {
		rules, err := kernel.List(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
		if err != nil && !absent(err) {
			return nil, fmt.Errorf("list policy rules: %w", err)
		}
		for _, r := range rules {
			if r.Priority == returnPriority && r.Mark == returnMark && r.Table == returnTable {
				there[returnRule(family)] = true
			}
		}
		routes, err := kernel.List(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: returnTable}, netlink.RT_FILTER_TABLE)
		})
		if err != nil && !absent(err) {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			if r.Type == unix.RTN_LOCAL {
				there[returnRoute(family)] = true
			}
		}
		if family == netlink.FAMILY_V6 && there[returnRule(family)] && ipv6IsOff() {
			there[returnRoute(family)] = true // there can be none, see ipv6IsOff
		}
	}
	t, err := findTable()
	if err != nil || t == nil {
		return there, err
	}
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("list nftables rules: %w", err)
	}
	for name, want := range map[string]struct {
		rule   string
		object kernel.Object
	}{netfilterChain: {netfilterRule, netfilterObject()}, connectionsChain: {connectionsRule, connectionsObject()}} {
		rules, err := c.GetRules(t, &nftables.Chain{Name: name, Table: t})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("list nftables rules: %w", err)
		}
		if len(rules) == 1 && bytes.Equal(rules[0].UserData, []byte(want.rule)) {
			there[want.object] = true
		}
	}
	return there, nil
}
