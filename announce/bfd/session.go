package bfd

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fairway-net/fairway/announce"
)

// Session is a way to be watched.
type Session struct {
	Peer     string // BGPPeer that the session is for
	Address  netip.Addr
	Source   netip.Addr // the kernel's choice if not valid
	VRF      string
	MultiHop bool
	Settings announce.BFD
}

// Status is what is known of a session.
type Status struct {
	Session
	State     State
	Since     time.Time // of the state
	LastError string    // why it went down last, or can't begin
	Counts    Counts
}

// Counts are figures of a session.
type Counts struct{ Received, Sent, Ups, Downs uint64 }

// running is a session at work.
type running struct {
	Session
	monitor  *Monitor
	log      *slog.Logger
	packets  chan packet
	cancel   context.CancelFunc
	done     chan struct{}
	lastSent time.Time
	// sleptSince says that the session was late to see that no packet came, once since the last.
	sleptSince bool

	mu      sync.Mutex
	machine *machine
	status  Status
}

func (r *running) current() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// run watches until ctx is done.
func (r *running) run(ctx context.Context) {
	defer close(r.done)
	for ctx.Err() == nil {
		err := r.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		news := r.status.LastError != err.Error()
		r.status.LastError = err.Error()
		r.mu.Unlock()
		if news {
			r.log.Warn("no BFD session; trying again", "reason", err)
		}
		const again = 2 * time.Second
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// watch keeps the session. An error says why no packets can be sent.
func (r *running) watch(ctx context.Context) error {
	if err := r.monitor.listen(r.socket()); err != nil {
		return err
	}
	conn, err := dial(&r.Session, sourcePort(r.machine.local))
	if err != nil {
		return err
	}
	defer conn.Close()
	// A router that knows this session from before the agent began anew is heard first.
	send := time.NewTimer(slow)
	defer send.Stop()
	expire := time.NewTimer(time.Hour)
	defer expire.Stop()
	for {
		final, due := false, false
		select {
		case <-ctx.Done():
			r.leave(conn)
			return nil
		case p := <-r.packets:
			r.mu.Lock()
			due, r.sleptSince = r.machine.receive(time.Now(), p), false
			r.mu.Unlock()
			final = p.Poll
		case <-expire.C:
			if r.mayHaveSlept(time.Now()) {
				expire.Reset(catchUp)
				continue
			}
			r.mu.Lock()
			due = r.machine.expire(time.Now())
			r.mu.Unlock()
		case <-send.C:
			due = r.machine.interval() > 0
		}
		r.note()
		if due {
			if err := r.send(conn, final); err != nil {
				return err
			}
		}
		r.arm(send, expire)
	}
}

const (
	// lateBy is how late a session is that was too busy, or stopped, to look at packets in time.
	lateBy = 20 * time.Millisecond
	// catchUp is how long it has then to read what came meanwhile.
	catchUp = 10 * time.Millisecond
)

// mayHaveSlept reports whether packets that have come may not have been looked at yet: then the
// router isn't silent.
func (r *running) mayHaveSlept(now time.Time) bool {
	if len(r.packets) > 0 {
		return true
	}
	if r.sleptSince || now.Sub(r.machine.deadline()) < lateBy {
		return false
	}
	r.sleptSince = true
	return true
}

// arm sets the timers to what is due next.
func (r *running) arm(send, expire *time.Timer) {
	if interval := r.machine.interval(); interval > 0 && !r.machine.resumable {
		jittered := interval - rand.N(interval/4+1) // RFC 5880, 6.8.7
		send.Reset(max(0, time.Until(r.lastSent.Add(jittered))))
	}
	if r.machine.state >= Init {
		expire.Reset(max(0, time.Until(r.machine.deadline())))
	} else {
		expire.Stop()
	}
}

func (r *running) send(conn net.Conn, final bool) error {
	r.mu.Lock()
	p := r.machine.packet(final)
	r.status.Counts.Sent++
	r.mu.Unlock()
	r.lastSent = time.Now()
	// An error of an earlier packet, such as "connection refused", is the router's
	// way to say that it has no BFD yet.
	_, err := conn.Write(p.marshal())
	if err != nil && !isRefusal(err) {
		return fmt.Errorf("send BFD packet: %w", err)
	}
	return nil
}

// leave tells the router that this side ends the session: its way is not broken.
func (r *running) leave(conn net.Conn) {
	r.mu.Lock()
	if r.machine.remote != 0 {
		r.machine.to(AdminDown, diagAdminDown)
	}
	told := r.machine.state == AdminDown
	r.mu.Unlock()
	if !told {
		return
	}
	const repeats = 3
	for range repeats {
		if err := r.send(conn, false); err != nil {
			return
		}
	}
}

// note takes over the state into the status and tells of changes.
func (r *running) note() {
	r.mu.Lock()
	before, now := r.status.State, r.machine.state
	r.status.State = now
	why := ""
	if before != now {
		r.status.Since = time.Now()
		switch {
		case now == Up:
			r.status.Counts.Ups++
			r.status.LastError = ""
		case before == Up:
			r.status.Counts.Downs++
			why = r.machine.diagnostic.String()
			r.status.LastError = why
		}
	}
	// RFC 5882, 4.3: a router that ends the session has not lost the way.
	broken := before == Up && now == Down && r.machine.remoteState != AdminDown
	r.mu.Unlock()
	if before == now {
		return
	}
	r.log.Info("BFD session", "state", now.String(), "reason", why)
	r.monitor.changed()
	if broken {
		r.monitor.broken(r.Peer, "BFD: the way to the router is broken: "+why)
	}
}
