package nftables

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// kubeProxyTable is the name of kube-proxy's tables in its nftables mode, one in
// each of the families ip and ip6.
// Source: KEP-3866; pkg/proxy/nftables/proxier.go.
const kubeProxyTable = "kube-proxy"

// removeKubeProxy removes what kube-proxy left in its nftables mode. It stays in
// force as long as it is there: its translations are asked before Fairway's, and
// would go on leading to endpoints that are gone by now.
func (p *Plane) removeKubeProxy() error {
	for _, family := range []byte{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		if err := p.socket.removeOther(family, kubeProxyTable); err != nil {
			return fmt.Errorf("remove kube-proxy's table: %w", err)
		}
	}
	return nil
}

// removeOther removes a table as removeTable does Fairway's own. One that isn't
// there, or not any more, is removed.
func (s *socket) removeOther(family byte, name string) error {
	var table wire
	table.str(unix.NFTA_TABLE_NAME, name)
	err := s.getOf(family, unix.NFT_MSG_GETTABLE, 0, table, func([]byte) {})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	c := &contents{chains: map[string]*foundChain{}}
	if err := s.readChainsOf(family, name, c); err != nil {
		return err
	}
	if err := s.unhook(family, name, c); err != nil {
		return err
	}
	kernel.Quiesce()
	b := s.newBatch()
	b.addOf(family, unix.NFT_MSG_DELTABLE, 0, table, "delete table")
	if err := b.commit(); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// unhook takes the filters and the entrances of a table away: first filters, as
// kube-proxy's refuse what comes to a Service and hasn't been translated, and the kernel
// takes chains away one after another, as the batch says.
func (s *socket) unhook(family byte, table string, c *contents) error {
	b := s.newBatch()
	for _, typ := range []string{"filter", "nat"} {
		for chain, found := range c.chains {
			if found.hook == nil || found.hook.typ != typ || typ == "nat" && !found.hook.entrance() {
				continue
			}
			var w wire
			w.str(unix.NFTA_CHAIN_TABLE, table)
			w.str(unix.NFTA_CHAIN_NAME, chain)
			b.addOf(family, unix.NFT_MSG_DELCHAIN, 0, w, "delete chain "+chain)
		}
	}
	if err := b.commit(); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
