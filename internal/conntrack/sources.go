package conntrack

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
)

// KeepSources has netfilter leave the sources of marked packets alone: what rules of others
// would masquerade, such as a CNI plugin's. Such a packet is translated to the source that it
// has, by a chain before theirs, and the kernel asks no other one then. It takes a table of
// nf_tables, of family inet, with this name, which is there only while there are such rules:
// it has the kernel track all connections.
func KeepSources(table string, mark uint32) error {
	others, err := masquerade(table)
	if err != nil {
		return err
	}
	there, err := KeepsTranslating(table)
	switch {
	case err != nil || others == there:
		return err
	case !others:
		return StopTranslating(table)
	}
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("add nftables table %s: %w", table, err)
	}
	t := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: table})
	before := *nftables.ChainPriorityNATSource - 1
	chain := c.AddChain(&nftables.Chain{
		Table: t, Name: "keep", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: &before,
	})
	for _, family := range []struct {
		nat           uint32
		offset, bytes uint32 // of the source in the header
	}{{unix.NFPROTO_IPV4, 12, 4}, {unix.NFPROTO_IPV6, 8, 16}} {
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(family.nat)}},
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(mark), Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: family.offset, Len: family.bytes},
			&expr.NAT{Type: expr.NATTypeSourceNAT, Family: family.nat, RegAddrMin: 1},
		}})
	}
	return explain(c.Flush(), "add", table)
}

// ownTable is nftables mode's, which masquerades what it has translated and nothing else.
const ownTable = "fairway"

// masquerade reports whether there are chains, but of this table, that may change packets'
// sources.
func masquerade(but string) (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, fmt.Errorf("find rules that masquerade: %w", err)
	}
	chains, err := c.ListChains()
	if err := explain(err, "find rules beside", but); err != nil && !kernel.IsMissing(err) {
		return false, err
	}
	if slices.ContainsFunc(chains, func(c *nftables.Chain) bool {
		return c.Type == nftables.ChainTypeNAT && c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookPostrouting && c.Table.Name != but && c.Table.Name != ownTable
	}) {
		return true, nil
	}
	for _, family := range iptables.Families() {
		if there, err := iptables.HasLegacyTable(family, "nat"); there || err != nil {
			return there, err
		}
	}
	return false, nil
}
