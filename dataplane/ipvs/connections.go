package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// Connections that IPVS translates outlive it: Remove hands them over to
// conntrack, whose NAT then does for them what IPVS did. So changing to another
// plane breaks none. IPVS forgets its connections once their destinations are
// gone, and conntrack's entries with them; until there are new ones, packets of these
// connections are dropped: see freeze.go.

// connections are those of the servers: see migrate.Connections.
type connections struct{ *Plane }

// Connections implements dataplane.Plane.
func (p *Plane) Connections() migrate.Connections { return connections{p} }

// Leave implements migrate.Connections: all servers leave at once.
func (c connections) Leave(context.Context) ([]migrate.Source, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.orphans, c.services = nil, orphans{}, map[lvs.ServerID]lvs.Service{}
	a, err := c.readKernel(&model.Settings{})
	if err != nil || len(a.servers) == 0 {
		return nil, err
	}
	return []migrate.Source{departure{c.Plane, a}}, nil
}

// Import implements migrate.Connections: IPVS leaves conntrack what conntrack has.
func (c connections) Import(context.Context, []conntrack.Flow) error { return nil }

// departure is how connections leave the plane: see migrate.Source. The plane is locked
// from Freeze to Thaw.
type departure struct {
	*Plane
	servers *actual
}

// Freeze implements migrate.Source. What takes long is done before packets are held up.
func (d departure) Freeze(ctx context.Context) error {
	d.mu.Lock()
	err := d.prepareFreeze(ctx)
	if err == nil {
		err = d.freeze()
	}
	if kernel.IsMissing(err) {
		err = nil // without iptables nothing can be held up, and nothing refuses packets
	}
	kernel.Quiesce() // or a connection that is being made would be missed
	return err
}

// Export implements migrate.Source.
func (d departure) Export(ctx context.Context) ([]conntrack.Flow, error) { return d.servers.flows(ctx) }

// Release implements migrate.Source: the servers go.
func (d departure) Release(ctx context.Context, flows []conntrack.Flow) error {
	problems := []error{d.removeAll(d.servers), waitForgotten(ctx, d.servers)}
	for i := range flows {
		problems = append(problems, flows[i].Clear())
	}
	return errors.Join(problems...)
}

// Thaw implements migrate.Source. IPVS can't have connections back.
func (d departure) Thaw(context.Context, bool, []conntrack.Flow) error {
	defer d.mu.Unlock()
	return d.thaw()
}

// removeAll removes the servers, in bulk, as packets are held up meanwhile.
func (p *Plane) removeAll(a *actual) error {
	var commands []lvs.ServerCommand
	for id := range a.servers {
		delete(p.services, id)
		delete(p.orphans, id)
		commands = append(commands, lvs.ServerCommand{Verb: lvs.DeleteServer, ID: id})
	}
	failed, err := p.balancer.Do(commands)
	if err != nil {
		return fmt.Errorf("remove virtual servers: %w", err)
	}
	var problems []error
	for n := range failed {
		if err := p.removeServer(commands[n].ID); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// waitForgotten waits until IPVS has no connections of these servers. It
// forgets them a moment after their destinations, and conntrack's entries with
// them, even if those were made anew meanwhile. (That is so since Linux 5.9;
// before, it was with their next packet, so there is nothing to wait for.)
func waitForgotten(ctx context.Context, a *actual) error {
	if !kernel.AtLeast(5, 9) {
		return nil
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		list, err := listConnections()
		if err != nil || !a.connected(list) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

// listConnections is IPVS's list of them; empty without IPVS.
func listConnections() (string, error) {
	content, err := os.ReadFile("/proc/thread-self/net/ip_vs_conn")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read IPVS connections: %w", err)
	}
	return string(content), nil
}

// remembered are the connections in that list, also those that have ended: each as
// its first five fields.
func remembered(list string) map[string]bool {
	known := map[string]bool{}
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) > 4 {
			known[strings.Join(fields[:5], " ")] = true
		}
	}
	return known
}

// inList is a connection as IPVS's list has it.
func inList(f *conntrack.Flow) string {
	return fmt.Sprintf("%s %s %04X %s %04X", strings.ToUpper(f.Proto.String()), procAddr(f.Client.Addr()), f.Client.Port(), procAddr(f.Frontend.Addr()), f.Frontend.Port())
}

// connected reports whether IPVS's list of connections names one of the
// servers: "TCP 0AF40102 8CE2 0A60000A 0050 ...", or with IPv6 addresses in
// brackets. Lines without a client's port are the memory of session affinity.
func (a *actual) connected(list string) bool {
	virtual := map[string]bool{}
	for id := range a.servers {
		if id.Mark == 0 {
			virtual[procAddr(id.Key.Addr)+fmt.Sprintf(" %04X", id.Key.Port)] = true
		}
	}
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[2] != "0000" && virtual[fields[3]+" "+fields[4]] {
			return true
		}
	}
	return false
}

func procAddr(a netip.Addr) string {
	if a.Is4() {
		return fmt.Sprintf("%X", a.AsSlice())
	}
	return "[" + a.StringExpanded() + "]"
}
