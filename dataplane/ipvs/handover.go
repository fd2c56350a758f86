package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/fairway-net/fairway/internal/kernel"
)

// Connections that IPVS translates outlive it: Remove hands them over to
// conntrack, whose NAT then does for them what IPVS did. So changing to another
// plane breaks none. IPVS forgets its connections once their destinations are
// gone, and conntrack's entries with them; in the moment until there are new
// ones, packets of these connections are dropped, to be sent again, lest
// somebody answer them who knows nothing of the connection: see pause.go.

// handOver removes virtual servers and gives their connections to conntrack. What
// takes long is done before packets are held up, or after.
func (p *Plane) handOver(ctx context.Context, a *actual) error {
	if len(a.servers) == 0 {
		return nil
	}
	var problems []error
	try := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	try(p.preparePause(ctx))
	try(p.pause())
	kernel.Quiesce() // or a connection that is being made would be missed
	flows, err := a.flows()
	try(err)
	try(p.removeAll(a))
	try(waitForgotten(ctx, a))
	for _, f := range flows {
		try(f.translate())
	}
	try(p.goOn())
	return errors.Join(problems...)
}

// removeAll removes the servers, in bulk, as packets are held up meanwhile.
func (p *Plane) removeAll(a *actual) error {
	var commands []serverCommand
	for id := range a.servers {
		delete(p.services, id)
		delete(p.orphans, id)
		commands = append(commands, serverCommand{verb: deleteServer, id: id})
	}
	failed, err := p.balancer.Do(commands)
	if err != nil {
		return fmt.Errorf("remove virtual servers: %w", err)
	}
	var problems []error
	for n := range failed {
		if err := p.removeServer(commands[n].id); err != nil {
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
		list, err := connections()
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

// connections is IPVS's list of them; empty without IPVS.
func connections() (string, error) {
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
func (t tuple) inList() string {
	return fmt.Sprintf("%s %s %04X %s %04X", strings.ToUpper(t.proto.String()), procAddr(t.src.Addr()), t.src.Port(), procAddr(t.dst.Addr()), t.dst.Port())
}

// connected reports whether IPVS's list of connections names one of the
// servers: "TCP 0AF40102 8CE2 0A60000A 0050 ...", or with IPv6 addresses in
// brackets. Lines without a client's port are the memory of session affinity.
func (a *actual) connected(list string) bool {
	virtual := map[string]bool{}
	for id := range a.servers {
		if id.mark == 0 {
			virtual[procAddr(id.key.Addr)+fmt.Sprintf(" %04X", id.key.Port)] = true
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
