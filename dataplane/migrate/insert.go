package migrate

import (
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Conntrack's table may be full, or the kernel short of memory, for a moment. Frozen
// packets wait for no longer than these attempts take, for all flows together.
const (
	attempts     = 4
	attemptPause = 20 * time.Millisecond
)

// table is where flows are inserted: conntrack's, but in tests.
type table struct {
	insert, clear func(*conntrack.Flow) error
}

// insertAll inserts flows. It returns those that conntrack has now, and those that it has
// no room for, and why; it tries them again for a moment.
func (t table) insertAll(flows []conntrack.Flow) (moved, stays []conntrack.Flow, err error) {
	for attempt := range attempts {
		if attempt > 0 {
			time.Sleep(attemptPause)
		}
		stays, err = nil, nil
		for i := range flows {
			failed := t.insertOne(&flows[i])
			switch {
			case failed == nil:
				moved = append(moved, flows[i])
			case impossible(failed):
				slog.Warn("a connection could not be moved to conntrack; it ends with the change of modes", "connection", flows[i].String(), "error", failed)
			default:
				stays, err = append(stays, flows[i]), failed
			}
		}
		if len(stays) == 0 || !temporary(err) {
			return moved, stays, err
		}
		flows = stays
	}
	return moved, stays, err
}

// insertOne inserts a flow. An entry in its way is what is left of an earlier connection,
// or a packet has made it just now; it is replaced. Of UDP flows, which nobody may have
// held up, it is a flow that goes on already.
func (t table) insertOne(f *conntrack.Flow) error {
	err := t.insert(f)
	for n := 1; n < attempts && errors.Is(err, unix.EEXIST) && f.Proto != model.UDP; n++ {
		if err := t.clear(f); err != nil {
			return err
		}
		err = t.insert(f)
	}
	if errors.Is(err, unix.EEXIST) {
		return nil // another connection has its place, or its backend's end of it
	}
	return err
}

// temporary reports whether an error is likely to be gone in a moment.
func temporary(err error) bool {
	for _, e := range []unix.Errno{unix.ENOMEM, unix.ENOBUFS, unix.EAGAIN, unix.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// impossible reports whether an error of conntrack says that this kernel will never have
// the flow: it has no conntrack, no NAT for it, or doesn't understand it.
func impossible(err error) bool {
	if errors.Is(err, unix.EPERM) {
		return false
	}
	return kernel.IsMissing(err) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT)
}
