package ipvs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/keptfile"
	"github.com/fairway-net/fairway/internal/lvs"
)

// deadlines are those of orphans, kept in a file, so that the next process goes on with
// them: without it an orphan's time would begin anew with each start.
type deadlines struct {
	file string
	// before are those of an earlier process, of orphans that this one hasn't seen yet.
	before map[orphan]time.Time
	saved  map[orphan]time.Time
	closed bool // the file is the next process's
}

// orphan is one destination of a server.
type orphan struct {
	server lvs.ServerID
	at     netip.AddrPort
}

// keptDeadline is one deadline in the file.
type keptDeadline struct {
	Server lvs.ServerID
	At     netip.AddrPort
	// Deadline is by the clock that counts since the machine's start, suspended or not
	// (CLOCK_BOOTTIME), in nanoseconds.
	Deadline time.Duration
	Boot     string // the machine's start: after another one there are no connections
}

// openDeadlines reads what an earlier process has left. A damaged file costs only its
// deadlines: they begin anew.
func openDeadlines(stateDir string) *deadlines {
	d := &deadlines{file: filepath.Join(stateDir, "ipvs-deadlines.json"), before: map[orphan]time.Time{}}
	if err := d.load(); err != nil {
		slog.Warn("the deadlines of connections to endpoints that are gone could not be read; they begin anew", "error", err)
	}
	d.saved = maps.Clone(d.before)
	return d
}

func (d *deadlines) load() error {
	data, err := keptfile.Load(d.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var list []keptDeadline
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("read %s: %w", d.file, err)
	}
	boot, since, err := sinceBoot()
	if err != nil {
		return err
	}
	now := time.Now()
	for _, k := range list {
		if k.Boot == boot {
			d.before[orphan{k.Server, k.At}] = now.Add(k.Deadline - since)
		}
	}
	return nil
}

// take gives the deadline that an earlier process has set; the zero time if there is none.
func (d *deadlines) take(id lvs.ServerID, at netip.AddrPort) time.Time {
	o := orphan{id, at}
	deadline := d.before[o]
	delete(d.before, o)
	return deadline
}

// forgetEarlier forgets the earlier process's, once all orphans have been seen.
func (d *deadlines) forgetEarlier() { clear(d.before) }

// save writes the deadlines of orphans, and those of an earlier process whose orphans may
// still be seen. Nothing is written while they are what they were.
func (d *deadlines) save(all orphans) error {
	if d.closed {
		return nil
	}
	now := maps.Clone(d.before)
	for id, list := range all {
		for at, deadline := range list {
			if !deadline.IsZero() {
				now[orphan{id, at}] = deadline
			}
		}
	}
	if maps.EqualFunc(now, d.saved, time.Time.Equal) {
		return nil
	}
	if len(now) == 0 {
		return d.remove()
	}
	boot, since, err := sinceBoot()
	if err != nil {
		return err
	}
	list := make([]keptDeadline, 0, len(now))
	for o, deadline := range now {
		list = append(list, keptDeadline{o.server, o.at, since + time.Until(deadline), boot})
	}
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(d.file), 0o700); err != nil {
		return err
	}
	if err := keptfile.Save(d.file, data, 0o600); err != nil {
		return fmt.Errorf("keep deadlines of orphans: %w", err)
	}
	d.saved = now
	return nil
}

// remove removes the file.
func (d *deadlines) remove() error {
	clear(d.before)
	d.saved = nil
	if err := os.Remove(d.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove deadlines of orphans: %w", err)
	}
	return nil
}

// sinceBoot names the machine's start and tells the time since.
func sinceBoot() (boot string, since time.Duration, err error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return "", 0, fmt.Errorf("read the clock: %w", err)
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", 0, fmt.Errorf("read the machine's boot id: %w", err)
	}
	return string(id), time.Duration(now.Nano()), nil
}
