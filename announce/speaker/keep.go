package speaker

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/announce/bgp"
	"github.com/fairway-net/fairway/announce/l2/responder"
	"github.com/fairway-net/fairway/announce/steering"
)

// Keeper keeps a speaker while agents take each other's place in the process:
// a change of the configuration moves no address. One without a speaker announces
// nothing.
type Keeper struct {
	Log *slog.Logger

	now  *Speaker // nil if nothing is announced
	api  *rest.Config
	stop context.CancelFunc
	done chan struct{}
}

// Take has a speaker announce for an agent: the one that announces already, if that
// is for the same API, node and options. Without a configuration nothing is announced
// any more, and the speaker is nil.
func (k *Keeper) Take(config *Config) (*Speaker, error) {
	if n := k.now; n != nil && config != nil && n.options == config.Options && n.node == config.NodeName && k.api == config.API {
		n.mu.Lock()
		n.events = config.Events
		n.connections, n.carriesOn, n.takes, n.again, n.peers = config.Connections, config.CarriesOn, config.TakesAddresses, config.Again, config.Peers
		n.mu.Unlock()
		return n, nil
	}
	if config == nil {
		k.endAll()
		return nil, nil
	}
	k.End()
	n, err := New(*config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	k.now, k.api, k.stop, k.done = n, config.API, stop, make(chan struct{})
	go func(done chan<- struct{}) {
		defer close(done)
		n.keepRunning(ctx)
	}(k.done)
	return n, nil
}

// endAll hands all addresses over, also those that an earlier process left to the
// kernel.
func (k *Keeper) endAll() {
	if k.now != nil {
		k.now.mu.Lock()
		k.now.ends = true
		k.now.mu.Unlock()
		k.End()
	}
	none := func(int) bool { return false }
	if _, err := responder.Sweep(none); err != nil {
		k.Log.Warn("this node may still answer for addresses", "error", err)
	}
	if _, err := steering.Sweep(none); err != nil {
		k.Log.Warn("this node may still lead connections to others", "error", err)
	}
}

// End ends announcing and returns when that is done. Addresses stay with this node
// where the kernel answers for them, and routers know of graceful restart, unless
// the machine stops.
func (k *Keeper) End() {
	if k.now == nil {
		return
	}
	k.now.handOver()
	k.stop()
	<-k.done
	k.now = nil
}

// keepRunning announces until ctx is done; whatever fails is tried again.
func (n *Speaker) keepRunning(ctx context.Context) {
	const again = 5 * time.Second
	for ctx.Err() == nil {
		if err := n.run(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("announcing ended; starting it again", "error", err)
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
func (n *Speaker) leaveRouters() {
	if s, ok := n.routers.(*bgp.Speaker); ok {
		const closeTimeout = 2 * time.Second
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		s.Close(ctx, n.isFollowed())
	}
	n.ways.Close()
}

// isFollowed reports whether another process is going to announce on this node,
// which goes on forwarding until then.
func (n *Speaker) isFollowed() bool {
	n.mu.Lock()
	may := n.self.Unfit == "" && !n.ends && !n.refused
	n.mu.Unlock()
	return may && !machineStops(n.systemd)
}

// systemdDir is there where systemd runs the machine (sd_booted(3)).
const systemdDir = "/run/systemd/system"

// machineStops reports whether systemd is shutting the machine down.
func machineStops(dir string) bool {
	if _, err := os.Stat(dir); err != nil {
		return false
	}
	const askSystemd = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), askSystemd)
	defer cancel()
	// It ends with an error for each state but "running".
	out, _ := exec.CommandContext(ctx, "systemctl", "is-system-running").Output()
	return strings.TrimSpace(string(out)) == "stopping"
}
