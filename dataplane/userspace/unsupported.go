package userspace

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// mayAddRoutes checks for the one privilege that is needed.
func mayAddRoutes() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		return &kernel.MissingError{What: "CAP_NET_ADMIN, to add routes", Err: unix.EPERM}
	}
	return nil
}

// Unsupported implements dataplane.Plane.
func (p *Plane) Unsupported() []kernel.Unsupported {
	address := kernel.Unsupported{
		Feature: kernel.ClientAddress, Value: kernel.RemoteOnly,
		Why: "only endpoints of this node, behind another interface than the client's, see its address; those on other nodes, or on one bridge with the client, would answer it directly instead of the relay, so they see an address of the node",
	}
	if p.notTransparent() != nil {
		address.Value, address.Why = "", fmt.Sprintf("the relay's own connections lead to the endpoints, since %v", p.notTransparent())
	}
	unsupported := []kernel.Unsupported{
		address,
		{Feature: kernel.SilentDrop, Value: "tcp", Why: "the kernel accepts a TCP connection before the relay can judge it; it is reset instead of dropped"},
		{Feature: kernel.UnservedPorts, Why: "a route makes the whole address the node's own, so the node refuses what no Service uses"},
		{Feature: kernel.DirectReturn, Why: "both ways of a connection go through the relay; external traffic is masqueraded"},
		{Feature: kernel.StableFlows, Why: "a connection ends at the relay where it began; at another node the client is reset"},
		{Feature: kernel.SCTPProtocol, Why: "the relay copies TCP and UDP only"},
		{Feature: kernel.Scheduling, Value: string(model.DestinationHashing), Why: "a relay has one destination for each port; endpoints are chosen by weight"},
		{Feature: kernel.Scheduling, Value: string(model.MaglevHashing), Why: "the relay hashes sources without a Maglev table (sh); endpoints are chosen by weight"},
		{Feature: kernel.Scheduling, Value: string(model.MaglevPortHashing), Why: "the relay has no Maglev table; endpoints are chosen by weight"},
	}
	if p.notTransparent() != nil {
		unsupported = append(unsupported, kernel.Unsupported{
			Feature: kernel.Handover,
			Why:     "without nf_tables, connections that another plane has translated are not translated any more, and another plane doesn't know those of the relay",
		})
	}
	return unsupported
}
