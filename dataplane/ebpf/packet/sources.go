package packet

import (
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
)

// Inside the node, between the two programs that see it, a packet of a masqueraded connection
// has an address and a port by which the second one knows it. Rules of others would change them: what
// passes between pods and others is masqueraded by CNI plugins (flannel, the bridge plugin's ipMasq). They
// spare what has kube-proxy's mark, at best, and answers of a bridge's pods are new
// connections to them, since netfilter has seen these before they were translated.

// sourcesTable is the table by which netfilter leaves such packets alone.
const sourcesTable = "fairway-ebpf-sources"

// translatedMark is TRANSLATED_MARK of bpf/conn.h. No bit of kube-proxy's is, since rules of another
// mode may still be there, or already, and have to masquerade what these marked.
const translatedMark = 0x1000

// keepSources keeps the table, while there are rules that it is against. Without nf_tables
// there is none.
func keepSources() error {
	if err := conntrack.KeepSources(sourcesTable, translatedMark); err != nil && !kernel.IsMissing(err) {
		return err
	}
	return nil
}
