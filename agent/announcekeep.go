package agent

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/announce/bgp"
)

// announcer keeps announcing while agents take each other's place in the process:
// a change of the configuration moves no address.
type announcer struct {
	now  *announcing // nil if nothing is announced
	api  *rest.Config
	stop context.CancelFunc
	done chan struct{}
}

// take has an agent announce: by what announces already, if that is for the same
// API, node and options.
func (k *announcer) take(a *Agent) error {
	wanted := a.config.Announce
	if n := k.now; n != nil && wanted != nil && n.options == *wanted && n.node == a.config.NodeName && k.api == a.config.API {
		n.mu.Lock()
		n.events = a.events
		n.mu.Unlock()
		a.balance = n
		return nil
	}
	k.end()
	if wanted == nil {
		return nil
	}
	n, err := newAnnouncing(a)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	k.now, k.api, k.stop, k.done = n, a.config.API, stop, make(chan struct{})
	a.balance = n
	go func(done chan<- struct{}) {
		defer close(done)
		n.keepRunning(ctx)
	}(k.done)
	return nil
}

// end hands all addresses over and returns when that is done.
func (k *announcer) end() {
	if k.now == nil {
		return
	}
	k.stop()
	<-k.done
	k.now = nil
}

// keepRunning announces until ctx is done; whatever fails is tried again.
func (n *announcing) keepRunning(ctx context.Context) {
	const again = 5 * time.Second
	for ctx.Err() == nil {
		if err := n.run(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("announcing ended; it begins again", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
	n.leaveRouters()
}

// leaveRouters ends the sessions. Routers that know of graceful restart keep the
// routes if this node goes on forwarding, which it does unless the machine stops.
func (n *announcing) leaveRouters() {
	n.mu.Lock()
	fit := n.self.Unfit == ""
	n.mu.Unlock()
	if s, ok := n.routers.(*bgp.Speaker); ok {
		const patience = 2 * time.Second
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s.Close(ctx, fit && !machineStops())
	}
	n.ways.Close()
}

// machineStops reports whether systemd is shutting the machine down.
func machineStops() bool {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return false
	}
	const patience = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// It ends with an error for each state but "running".
	out, _ := exec.CommandContext(ctx, "systemctl", "is-system-running").Output()
	return strings.TrimSpace(string(out)) == "stopping"
}
