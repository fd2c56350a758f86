package conntrack

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// keepChain and keepRule are the content of a table of KeepTranslating. A chain of type nat with a rule
// that asks conntrack something has two effects: the kernel translates what conntrack
// has translated before (nf_nat_register_fn), and conntrack knows all connections
// from their first packet on (nf_ct_netns_get).
const (
	keepChain = "connections"
	keepRule  = "ct state new accept"
)

// KeepTranslating has the kernel go on translating the connections that it
// translates, when the rules are gone that began it, and if they were the only ones.
// It takes a table of nf_tables, of family inet, with this name.
func KeepTranslating(table string) error {
	there, err := KeepsTranslating(table)
	if err != nil || there {
		return err
	}
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("add nftables table %s: %w", table, err)
	}
	AddKeeper(c, c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: table}), keepChain, keepRule)
	return explain(c.Flush(), "add", table)
}

// AddKeeper adds to a table what KeepTranslating has in its own. The rule's user
// data is comment.
func AddKeeper(c *nftables.Conn, t *nftables.Table, chain, comment string) {
	keeper := c.AddChain(&nftables.Chain{
		Table: t, Name: chain, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest,
	})
	isNew := binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW)
	c.AddRule(&nftables.Rule{Table: t, Chain: keeper, UserData: []byte(comment), Exprs: []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: isNew, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}})
}

// KeepsTranslating reports whether there is such a table.
func KeepsTranslating(table string) (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, fmt.Errorf("find nftables table %s: %w", table, err)
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err := explain(err, "find", table); err != nil {
		if kernel.IsMissing(err) {
			return false, nil
		}
		return false, err
	}
	for _, t := range tables {
		if t.Name == table {
			return true, nil
		}
	}
	return false, nil
}

// StopTranslating removes the table, if it is there.
func StopTranslating(table string) error {
	there, err := KeepsTranslating(table)
	if err != nil || !there {
		return err
	}
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("delete nftables table %s: %w", table, err)
	}
	c.DelTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: table})
	if err := c.Flush(); !errors.Is(err, unix.ENOENT) {
		return explain(err, "delete", table)
	}
	return nil
}

func explain(err error, verb, table string) error {
	lacksModule := verb == "add" && errors.Is(err, unix.ENOENT) // of chains of type nat, or of what is in their rules
	if lacksModule || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		err = &kernel.MissingError{What: "nf_tables with NAT", Since: "5.2", Err: err}
	}
	if err != nil {
		return fmt.Errorf("%s nftables table %s: %w", verb, table, err)
	}
	return nil
}
