package nftables

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
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
		for typ, value := range attributes(data) {
			switch typ {
			case unix.NFTA_CHAIN_TABLE:
				table = text(value)
			case unix.NFTA_CHAIN_NAME:
				name = text(value)
			case unix.NFTA_CHAIN_TYPE:
				found.base().typ = text(value)
			case unix.NFTA_CHAIN_POLICY:
				if number(value) != acceptPolicy {
					found.base().name = "policy drop"
				}
			case unix.NFTA_CHAIN_HOOK:
				for typ, value := range attributes(value) {
					switch typ {
					case unix.NFTA_HOOK_HOOKNUM:
						found.base().number = number(value)
					case unix.NFTA_HOOK_PRIORITY:
						found.base().priority = int32(number(value))
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
	var w wire
	w.str(unix.NFTA_RULE_TABLE, tableName)
	err := s.get(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, w, func(data []byte) {
		var table, chain string
		var r foundRule
		for typ, value := range attributes(data) {
			switch typ {
			case unix.NFTA_RULE_TABLE:
				table = text(value)
			case unix.NFTA_RULE_CHAIN:
				chain = text(value)
			case unix.NFTA_RULE_EXPRESSIONS:
				for _, e := range attributes(value) {
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
