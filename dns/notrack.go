package dns

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tableName is our nftables table's; nobody else's is touched.
const tableName = "fairway-dns"

// Untrack keeps questions to the addresses, and their answers, out of
// connection tracking: they are many, short and never translated.
func Untrack(addrs []netip.Addr) error {
	return replaceRules(func(a netip.Addr, proto byte) [][]expr.Any {
		return [][]expr.Any{
			append(matching(a, proto, true), &expr.Notrack{}),
			append(matching(a, proto, false), &expr.Notrack{}),
		}
	}, addrs, "keep DNS out of connection tracking")
}

// replaceRules makes our table anew, in one transaction, with rules for each
// address and protocol where packets come in and where this machine sends them.
func replaceRules(rules func(netip.Addr, byte) [][]expr.Any, addrs []netip.Addr, what string) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	conn.AddTable(table) // so that deleting it is no error
	conn.DelTable(table)
	conn.AddTable(table)
	for name, hook := range map[string]*nftables.ChainHook{
		"prerouting": nftables.ChainHookPrerouting, "output": nftables.ChainHookOutput,
	} {
		chain := conn.AddChain(&nftables.Chain{
			Name: name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityRaw,
		})
		for _, a := range addrs {
			for _, proto := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
				for _, r := range rules(a, proto) {
					conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r})
				}
			}
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Park has questions to the addresses wait while nobody answers them: they are
// dropped, so that clients ask again, where a refusal would be final to many.
// Untrack and Track end that.
func Park(addrs []netip.Addr) error {
	return replaceRules(func(a netip.Addr, proto byte) [][]expr.Any {
		return [][]expr.Any{append(matching(a, proto, true), &expr.Verdict{Kind: expr.VerdictDrop})}
	}, addrs, "have DNS questions wait")
}

// Track undoes Untrack and Park.
func Track() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	conn.AddTable(table)
	conn.DelTable(table)
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("delete table %s: %w", tableName, err)
	}
	return nil
}

// matching matches packets to (or from) an address and port 53.
func matching(a netip.Addr, proto byte, to bool) []expr.Any {
	family, offset, length := byte(unix.NFPROTO_IPV4), uint32(12), uint32(4)
	if a.Is6() {
		family, offset, length = unix.NFPROTO_IPV6, 8, 16
	}
	var port uint32
	if to {
		offset, port = offset+length, 2
	}
	equal := func(data []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, equal([]byte{family}),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}, equal(a.AsSlice()),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal([]byte{proto}),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: port, Len: 2}, equal(binaryutil.BigEndian.PutUint16(53)),
	}
}
