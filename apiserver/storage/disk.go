package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// leastFree is how many bytes must be free for objects to be written. etcd
	// can't go on once a write of its own fails, so it never comes to that: its
	// log is laid out in advance, and the rest fits into what is left.
	leastFree = 32 << 20
	// enoughFree is how many bytes must be free for writing to begin again.
	enoughFree = 48 << 20
	// reserveBytes is the size of a file that is given up when the disk is full.
	reserveBytes = 32 << 20
	// leastToStart is what a server takes at its start: the next piece of etcd's
	// log, and some room for certificates and the like.
	leastToStart = 24 << 20
	// diskPeriod is how often the disk is looked at besides before each write:
	// etcd writes by itself too, up to 100 ms after it was asked to.
	diskPeriod = 100 * time.Millisecond
)

// disk watches the room for the embedded etcd. While there is too little,
// objects are read and deleted, but not written.
type disk struct {
	dir  string
	full atomic.Bool
	// laidOut is up to where etcd's database has blocks of the disk. One that was
	// defragmented is another file, and smaller.
	laidOut int64
	// filled, if set, is called when the disk is found to be full.
	filled func()
}

// room is the free and the whole size of a file system, in bytes.
type room struct{ free, size uint64 }

func (r room) String() string { return fmt.Sprintf("%s of %s free", bytes(r.free), bytes(r.size)) }

// bytes writes a size as people read it.
func bytes(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

func (d *disk) room() (room, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(d.dir, &s); err != nil {
		return room{}, fmt.Errorf("look at the disk of %s: %w", d.dir, err)
	}
	return room{s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize)}, nil
}

func (d *disk) reserve() string { return filepath.Join(d.dir, "reserve") }

// CheckRoom refuses the start of a server whose disk has no room at all: it and
// etcd would fail in the middle. The reserve is given up if that helps.
func CheckRoom(dir string) error {
	d := &disk{dir: dir}
	r, err := d.room()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && r.free < leastToStart {
		if err := os.Remove(d.reserve()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("give up the reserve: %w", err)
		}
		r, err = d.room()
	}
	if err != nil {
		return err
	}
	if r.free < leastToStart {
		return fmt.Errorf("disk full: %s has %s, and starting takes %s", dir, r, bytes(leastToStart))
	}
	return nil
}

// watch looks at the disk until ctx is done.
func (d *disk) watch(ctx context.Context) {
	tick := time.NewTicker(diskPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := errors.Join(d.look(), d.layOut()); err != nil {
			slog.Warn("the disk could not be watched", "error", err)
		}
	}
}

// look decides whether objects may be written, and says so when that changes.
func (d *disk) look() error {
	r, err := d.room()
	if err != nil {
		return err
	}
	switch {
	case r.free < leastFree:
		return d.giveUp(r)
	case r.free > enoughFree+reserveBytes && d.full.CompareAndSwap(true, false):
		slog.Info(fmt.Sprintf("apiserver: %s has %s; the API takes writes again", d.dir, r))
		return d.layAside()
	case r.free > enoughFree+reserveBytes:
		return d.layAside()
	}
	return nil
}

// mayWrite looks at the disk before a write: others fill it at any time.
func (d *disk) mayWrite() bool {
	if d.full.Load() {
		return false
	}
	r, err := d.room()
	if err == nil && r.free < leastFree {
		err = d.giveUp(r)
	}
	if err != nil {
		slog.Warn("the disk could not be checked before a write", "error", err)
	}
	return !d.full.Load()
}

// giveUp stops writes, and makes room for what etcd has still to write.
func (d *disk) giveUp(r room) error {
	if !d.full.CompareAndSwap(false, true) {
		return nil
	}
	err := os.Remove(d.reserve())
	if d.filled != nil {
		go d.filled()
	}
	slog.Error(fmt.Sprintf("apiserver: disk full: %s has %s; the API is read-only until there are %s", d.dir, r, bytes(enoughFree+reserveBytes)))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("give up the reserve: %w", err)
	}
	return nil
}

// aheadBytes is how far beyond its end etcd's database has blocks of the disk.
const aheadBytes = 8 << 20

// layOut takes blocks for the whole of etcd's database, which is a file with
// holes, and for what it grows by next. Otherwise a disk that somebody fills at
// once would fail a write that was accepted a moment before. The log is laid out
// by etcd itself.
func (d *disk) layOut() error {
	if d.full.Load() {
		return nil
	}
	name := filepath.Join(d.dir, "member", "snap", "db")
	info, err := os.Stat(name)
	if err != nil {
		return fmt.Errorf("lay out the database: %w", err)
	}
	if info.Size()+aheadBytes/2 <= d.laidOut && info.Size() >= d.laidOut-2*aheadBytes {
		return nil
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("lay out the database: %w", err)
	}
	size := info.Size() + aheadBytes
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSPC) {
		err = nil // then there is less of it; look decides about writes
	}
	d.laidOut = size
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("lay out the database: %w", err)
	}
	return nil
}

// layAside makes the reserve if it isn't there.
func (d *disk) layAside() error {
	f, err := os.OpenFile(d.reserve(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err == nil {
		err = errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, reserveBytes), f.Close())
	}
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("lay a reserve aside: %w", errors.Join(err, os.Remove(d.reserve())))
	}
	return nil
}

// refusal is the answer to a write for which there is no room.
func (d *disk) refusal() error {
	message := "disk full: objects can be read and deleted only"
	if r, err := d.room(); err == nil {
		message = fmt.Sprintf("disk full: %s has %s; objects can be read and deleted only", d.dir, r)
	}
	return &statusError{metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: "InsufficientStorage", Message: message}}
}

// statusError is an API status that the generic registry passes on unchanged.
type statusError struct{ status metav1.Status }

func (e *statusError) Error() string         { return e.status.Message }
func (e *statusError) Status() metav1.Status { return e.status }

// guardedClient refuses to write objects while the disk is full.
type guardedClient struct {
	kubernetes.Interface
	disk *disk
}

// OptimisticDelete implements kubernetes.Interface. A deletion is a write too:
// the reserve is given up for it.
func (c *guardedClient) OptimisticDelete(ctx context.Context, key string, expected int64, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	c.disk.mayWrite()
	return c.Interface.OptimisticDelete(ctx, key, expected, opts)
}

// OptimisticPut implements kubernetes.Interface. Whoever creates what is there
// already is told that, full disk or not.
func (c *guardedClient) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	if c.disk.mayWrite() {
		return c.Interface.OptimisticPut(ctx, key, value, expected, opts)
	}
	if expected == 0 {
		if current, err := c.Get(ctx, key, kubernetes.GetOptions{}); err == nil && current.KV != nil {
			return kubernetes.PutResponse{KV: current.KV, Revision: current.Revision}, nil
		}
	}
	return kubernetes.PutResponse{}, c.disk.refusal()
}
