package agent

import (
	"context"
	"net/netip"
	"strings"
	"time"

	membership "github.com/fairway-net/fairway/announce/link"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/endpoint/check"
)

// How a machine is asked whether it is there of which nothing is heard on the link: its kernel,
// by an echo request to some of its endpoints' addresses, which is the way that connections take.
const (
	askedAddresses = 4
	echoRequests   = 3
	echoEvery      = 35 * time.Millisecond
)

// peers says how the other machines of the link are asked, and has what they agree on go into the
// table.
func (a *Agent) peers() membership.Inquiry {
	return membership.Inquiry{
		Ask:     a.askPeer,
		Changed: a.peersChanged,
		IsAlone: func() bool { return a.api.Away() > 0 },
	}
}

func (a *Agent) askPeer(ctx context.Context, node string) membership.Answer {
	var addresses []netip.Addr
	a.state.withCompiler(func(c *compile.Compiler) { addresses = c.AddressesOn(node, askedAddresses) })
	if len(addresses) == 0 {
		return membership.Unknown // nor does anything depend on it
	}
	answers, err := check.Echoes(ctx, addresses, echoRequests, echoEvery)
	switch {
	case answers:
		return membership.Answers
	case err != nil || ctx.Err() != nil:
		return membership.Unknown
	}
	return membership.Silent
}

func (a *Agent) peersChanged(gone []string) {
	if !a.state.setGone(gone) {
		return
	}
	a.metrics.MachinesGone.Set(float64(len(gone)))
	if len(gone) == 0 {
		a.config.Log.Info("all machines of the link are there again")
		return
	}
	a.config.Log.Warn("machines are gone, as their peers on the link agree: their endpoints get no new connections from here while others are ready",
		"machines", strings.Join(gone, ","))
}
