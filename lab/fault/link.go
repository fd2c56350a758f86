package fault

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/fairway-net/fairway/internal/netns"
)

// Cut drops what passes a port of the underlay's bridge, in both directions. The
// link stays up. Again is no error.
func Cut(underlay *netns.NS, port string) error {
	if err := Join(underlay, port); err != nil {
		return err
	}
	c, err := nftables.New(nftables.WithNetNSFd(underlay.Fd()))
	if err != nil {
		return fmt.Errorf("open nf_tables of %s: %w", underlay, err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyBridge, Name: cutName(port)})
	for _, way := range []struct {
		name string
		hook *nftables.ChainHook
		key  expr.MetaKey
	}{
		{"from", nftables.ChainHookPrerouting, expr.MetaKeyIIFNAME},
		{"to", nftables.ChainHookPostrouting, expr.MetaKeyOIFNAME},
	} {
		chain := c.AddChain(&nftables.Chain{
			Name: way.name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: way.hook, Priority: nftables.ChainPriorityRaw,
		})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: way.key, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: interfaceData(port)},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("cut %s off: %w", port, err)
	}
	return nil
}

// Join undoes Cut.
func Join(underlay *netns.NS, port string) error {
	c, err := nftables.New(nftables.WithNetNSFd(underlay.Fd()))
	if err != nil {
		return fmt.Errorf("open nf_tables of %s: %w", underlay, err)
	}
	c.DelTable(&nftables.Table{Family: nftables.TableFamilyBridge, Name: cutName(port)})
	if err := c.Flush(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("join %s again: %w", port, err)
	}
	return nil
}

func cutName(port string) string { return tableName + "-" + port }
