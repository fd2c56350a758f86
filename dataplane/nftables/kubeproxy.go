package nftables

import (
	"fmt"

	"golang.org/x/sys/unix"
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
		if err := p.socket.removeTable(family, kubeProxyTable); err != nil {
			return fmt.Errorf("remove kube-proxy's table: %w", err)
		}
	}
	return nil
}
