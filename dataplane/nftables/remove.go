package nftables

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/nlmsg"
)

// removeTable removes a table of any family. One that isn't there, or not any more, is
// removed. It takes away first what packets enter the table by, all at once, so
// that from one moment on another plane meets them as they came. Those that have
// entered go through to the end, where they may still have to be masqueraded:
// only then does the rest go. A lookup in a table that is being deleted finds
// nothing, and packets would be refused that another plane serves by now.
func (s *socket) removeTable(family byte, name string) error {
	var table nlmsg.Builder
	table.Text(unix.NFTA_TABLE_NAME, name)
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
			var w nlmsg.Builder
			w.Text(unix.NFTA_CHAIN_TABLE, table)
			w.Text(unix.NFTA_CHAIN_NAME, chain)
			b.addOf(family, unix.NFT_MSG_DELCHAIN, 0, w, "delete chain "+chain)
		}
	}
	if err := b.commit(); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// Remove takes the table out of the kernel, and what kube-proxy left: see
// dataplane.Plane. No connection passes through this process.
func (p *Plane) Remove(ctx context.Context, _ kernel.Removal) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.state, p.applied, p.swept = nil, nil, nil
	p.cache.forget()
	c := &contents{}
	if err := p.socket.readTable(c); err != nil {
		return err
	}
	if c.present {
		if err := p.socket.removeTable(unix.NFPROTO_INET, tableName); err != nil {
			return err
		}
	}
	if !p.options.KeepKubeProxy {
		if err := p.removeKubeProxy(); err != nil {
			return err
		}
	}
	return p.localnet.Keep(false, true)
}
