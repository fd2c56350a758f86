package nftables

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

func (s *socket) readChains(c *contents) error {
	return s.readChainsOf(unix.NFPROTO_INET, tableName, c)
}

// readChainsOf reads the chains of a table of any family.
func (s *socket) readChainsOf(family byte, of string, c *contents) error {
	// The kernel lists chains by family only; those of other tables are passed over.
	err := s.getOf(family, unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, nil, func(data []byte) {
		var table, name string
		found := &foundChain{}
		for typ, value := range nlmsg.Attributes(data).All() {
			switch typ {
			case unix.NFTA_CHAIN_TABLE:
				table = value.Text()
			case unix.NFTA_CHAIN_NAME:
				name = value.Text()
			case unix.NFTA_CHAIN_TYPE:
				found.base().typ = value.Text()
			case unix.NFTA_CHAIN_POLICY:
				if value.Number() != acceptPolicy {
					found.base().name = "policy drop"
				}
			case unix.NFTA_CHAIN_HOOK:
				for typ, value := range value.All() {
					switch typ {
					case unix.NFTA_HOOK_HOOKNUM:
						found.base().number = value.Number()
					case unix.NFTA_HOOK_PRIORITY:
						found.base().priority = int32(value.Number())
					}
				}
			}
		}
		if table == of {
			c.chains[name] = found
		}
	})
	if err != nil {
		return fmt.Errorf("list chains: %w", err)
	}
	return nil
}

func (c *foundChain) base() *hook {
	if c.hook == nil {
		c.hook = &hook{}
	}
	return c.hook
}

// matches reports whether the chain hangs where want does.
func (c *foundChain) matches(want *chain) bool {
	if c.hook == nil || want.hook == nil {
		return c.hook == nil && want.hook == nil
	}
	return c.hook.typ == want.hook.typ && c.hook.number == want.hook.number &&
		c.hook.priority == want.hook.priority && c.hook.name == ""
}

func (s *socket) readRules(c *contents) error {
	var w nlmsg.Builder
	w.Text(unix.NFTA_RULE_TABLE, tableName)
	err := s.get(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, w, func(data []byte) {
		var table, chain string
		var r foundRule
		for typ, value := range nlmsg.Attributes(data).All() {
			switch typ {
			case unix.NFTA_RULE_TABLE:
				table = value.Text()
			case unix.NFTA_RULE_CHAIN:
				chain = value.Text()
			case unix.NFTA_RULE_EXPRESSIONS:
				for _, e := range value.All() {
					r.exprs = append(r.exprs, slices.Clone(e))
				}
			}
		}
		if found := c.chains[chain]; found != nil && table == tableName {
			found.rules = append(found.rules, r)
		}
	})
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	return nil
}
