// Package lastknown keeps on disk what an agent last knew of the API, so that a
// machine that boots while no server answers forwards as it did before.
//
//   - store.go: the file, which changes are appended to, and which is written anew when
//     half of it is of the past
//   - record.go: a change in the file, with its checksums
//   - keep.go: how watches fill it, and what they get from it
package lastknown

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/internal/keptfile"
)

// flushPeriod is how long changes are gathered before they are written. What a
// crash loses of them the API tells again.
const flushPeriod = time.Second

// flushBytes is how many bytes of changes are gathered at most.
const flushBytes = 1 << 20

// smallFile is how large the file may be whatever is in it.
const smallFile = 1 << 20

// Store is the file. It is open only while it is read or written. Methods may be called
// from several goroutines.
type Store struct {
	name string
	log  *slog.Logger
	lock *os.File // held, so that no other agent writes the file

	mu    sync.Mutex
	dirty *batch

	writing sync.Mutex // one flush after the other
	spare   *batch     // in the middle of a long list, a batch that was written
	size    int64      // of the file
	live    int64      // how much of it isn't of the past, or wasn't when that was last known
	// written are, by resource and by hash of their keys, hashes of the values that the
	// file has, until the API has told everything: most are the same then.
	written map[string]map[uint64]uint64
	listed  map[string]bool // the API has told everything of these resources
	lost    map[string]bool // changes of these could not be written since the last whole list
	seed    maphash.Seed
}

// batch is what is written together.
type batch struct {
	changes map[string]map[string][]byte // by resource and key; nil deletes
	bytes   int                          // of values
	memory  []byte                       // what further values are made in
}

func newBatch() *batch { return &batch{changes: map[string]map[string][]byte{}} }

// fewBytes is what a batch has memory for at first; most never need more.
const fewBytes = 16 << 10

// add takes in a change; nil deletes.
func (b *batch) add(resource, key string, value encoder) error {
	if b.changes[resource] == nil {
		b.changes[resource] = map[string][]byte{}
	}
	if value == nil {
		b.changes[resource][key] = nil
		return nil
	}
	encoded := b.room(value.Size())
	if _, err := value.MarshalToSizedBuffer(encoded); err != nil {
		return err
	}
	b.changes[resource][key] = encoded
	return nil
}

// room is memory for a value. That of other values stays where it is.
func (b *batch) room(size int) []byte {
	begin := len(b.memory)
	if begin+size > cap(b.memory) {
		more := fewBytes
		if b.bytes > 0 {
			more = flushBytes
		}
		b.memory, begin = make([]byte, 0, max(more, size)), 0
	}
	b.bytes += size
	b.memory = b.memory[:begin+size]
	return b.memory[begin:]
}

func (b *batch) empty() bool {
	for _, changes := range b.changes {
		if len(changes) > 0 {
			return false
		}
	}
	return true
}

// clear makes the batch ready for other changes, in the same memory.
func (b *batch) clear() {
	for _, changes := range b.changes {
		clear(changes)
	}
	b.bytes, b.memory = 0, b.memory[:0]
}

// encoder is an object that is encoded into memory of its size, as the API's are.
type encoder interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
}

// File is where what a node last knew is kept in a directory.
func File(dir, node string) string { return filepath.Join(dir, "lastknown-"+node) }

// Open opens the file of a node in dir, or makes it. One that is damaged is moved
// aside, with a warning.
func Open(dir, node string, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep what is known: %w", err)
	}
	s := &Store{name: File(dir, node), log: log, dirty: newBatch(), written: map[string]map[uint64]uint64{}, listed: map[string]bool{}, lost: map[string]bool{}, seed: maphash.MakeSeed()}
	if err := s.lockFile(); err != nil {
		return nil, s.explain(err)
	}
	for _, old := range []string{s.name + ".db"} { // an earlier version's
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(s.explain(err), s.lock.Close())
		}
	}
	if err := s.explain(s.readIn()); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	return s, nil
}

// lockFile keeps other agents from the file.
func (s *Store) lockFile() (err error) {
	if s.lock, err = os.OpenFile(s.name+".lock", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("another agent uses it: %w", err), s.lock.Close())
	}
	return nil
}

// readIn reads the file once, and cuts off what a crash has left at its end.
func (s *Store) readIn() error {
	f, err := os.OpenFile(s.name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return s.begin()
	}
	if err != nil {
		return err
	}
	records := 0
	s.size, err = scan(f, func(r *record) error {
		hashes := s.hashes(r.resource)
		switch key := maphash.String(s.seed, r.key); r.kind {
		case setRecord:
			records++
			hashes[key] = maphash.Bytes(s.seed, r.value)
		case deleteRecord:
			delete(hashes, key)
		}
		return nil
	})
	damage := (*keptfile.DamagedError)(nil)
	if errors.As(err, &damage) {
		s.written = map[string]map[uint64]uint64{}
		return errors.Join(f.Close(), keptfile.SetAside(s.name, err, s.log), s.begin())
	}
	for _, hashes := range s.written {
		s.live += s.size * int64(len(hashes)) / int64(max(records, 1))
	}
	if err == nil {
		err = f.Truncate(s.size)
	}
	return errors.Join(err, f.Close())
}

// begin makes an empty file.
func (s *Store) begin() error {
	s.size, s.live = int64(len(magic)), 0
	return keptfile.Write(s.name, []byte(magic), 0o600)
}

// Close writes what has changed.
func (s *Store) Close() error { return errors.Join(s.flush(), s.lock.Close()) }

func (s *Store) explain(err error) error {
	if err != nil {
		return fmt.Errorf("use %s: %w", s.name, err)
	}
	return nil
}

// set remembers a change until the next flush, which it does itself if there is
// much to write. A nil value deletes.
func (s *Store) set(resource string, name types.NamespacedName, value encoder) error {
	bytes, err := s.add(resource, name.String(), value)
	if err != nil || bytes < flushBytes {
		return err
	}
	return s.flushMore()
}

func (s *Store) add(resource, key string, value encoder) (bytes int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.dirty.add(resource, key, value)
	return s.dirty.bytes, err
}

// flush writes the changes. If that fails they are forgotten: the file is then
// older than it could be, and serves nevertheless.
func (s *Store) flush() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.spare = nil
	return s.explain(s.write(s.exchange(newBatch()), ""))
}

// flushMore is flush in the middle of a long list.
func (s *Store) flushMore() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	dirty := s.exchange(cmp.Or(s.spare, newBatch()))
	err := s.write(dirty, "")
	dirty.clear()
	s.spare = dirty
	return s.explain(err)
}

// exchange returns what has changed. Further changes go to the next batch.
func (s *Store) exchange(next *batch) *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	dirty := s.dirty
	s.dirty = next
	return dirty
}

// write appends changes, and that a resource is complete, if it is named. It is called
// with writing locked.
func (s *Store) write(dirty *batch, complete string) error {
	if dirty.empty() && complete == "" {
		return nil
	}
	now := time.Now()
	var records []byte
	added := 0 // bytes of records of objects that the file didn't have
	for resource, changes := range dirty.changes {
		for _, key := range slices.Sorted(maps.Keys(changes)) {
			if value := changes[key]; value == nil {
				records = appendRecord(records, deleteRecord, resource, key, nil, now)
			} else if isNew, known := s.isNew(resource, key, value); isNew {
				before := len(records)
				records = appendRecord(records, setRecord, resource, key, value, now)
				if !known {
					added += len(records) - before
				}
			}
		}
	}
	isWhole := complete != "" && !s.lost[complete]
	if isWhole {
		records = appendRecord(records, completeRecord, complete, "", nil, now)
	}
	if err := s.appendToFile(records); err != nil {
		for resource := range dirty.changes {
			s.lost[resource] = true
			delete(s.written, resource)
		}
		return err
	}
	if isWhole {
		delete(s.written, complete)
		s.listed[complete] = true
	}
	s.live += int64(added)
	if s.size > smallFile && s.size > 2*s.live {
		return s.writeAnew()
	}
	return nil
}

// isNew reports whether the file has another value, as far as is known, or none. An object is
// known if the file may have an older value of it.
func (s *Store) isNew(resource, key string, value []byte) (isNew, known bool) {
	if s.listed[resource] {
		return true, true
	}
	hashes := s.hashes(resource)
	k, v := maphash.String(s.seed, key), maphash.Bytes(s.seed, value)
	was, known := hashes[k]
	if known && was == v {
		return false, true
	}
	hashes[k] = v
	return true, known
}

// hashes are those of a resource of which the API hasn't told everything.
func (s *Store) hashes(resource string) map[uint64]uint64 {
	if s.written[resource] == nil {
		s.written[resource] = map[uint64]uint64{}
	}
	return s.written[resource]
}

// appendToFile adds records to the file. What could be written only in part is cut off.
func (s *Store) appendToFile(records []byte) error {
	if len(records) == 0 {
		return nil
	}
	f, err := os.OpenFile(s.name, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) { // somebody has deleted it: it begins anew
		if err = s.begin(); err == nil {
			f, err = os.OpenFile(s.name, os.O_WRONLY, 0)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(records, s.size)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		s.size += int64(len(records))
	} else {
		err = errors.Join(err, f.Truncate(s.size))
	}
	return errors.Join(err, f.Close())
}

// place is where the file has the latest record of a key.
type place struct{ offset, size int64 }

// writeAnew leaves what is of the past out of the file.
func (s *Store) writeAnew() (err error) {
	f, err := os.Open(s.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	latest := map[string]place{}
	if _, err := scan(f, func(r *record) error {
		name := r.resource + " " + r.key
		if r.kind == deleteRecord {
			delete(latest, name)
		} else {
			latest[name] = place{r.offset, r.size}
		}
		return nil
	}); err != nil {
		return err
	}
	places := slices.SortedFunc(maps.Values(latest), func(a, b place) int { return cmp.Compare(a.offset, b.offset) })
	next, err := os.OpenFile(s.name+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	size, err := copyPlaces(next, f, places)
	err = errors.Join(err, next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), s.name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	s.size, s.live = size, size
	return keptfile.SyncDir(filepath.Dir(s.name))
}

// copyPlaces writes a file that has what is at some places of another one.
func copyPlaces(to, from *os.File, places []place) (int64, error) {
	buffer := append(make([]byte, 0, flushBytes), magic...)
	written := int64(0)
	for _, p := range places {
		if len(buffer) > 0 && len(buffer)+int(p.size) > flushBytes {
			n, err := to.Write(buffer)
			if written += int64(n); err != nil {
				return written, err
			}
			buffer = buffer[:0]
		}
		begin := len(buffer)
		buffer = slices.Grow(buffer, int(p.size))[:begin+int(p.size)]
		if _, err := from.ReadAt(buffer[begin:], p.offset); err != nil {
			return written, err
		}
	}
	n, err := to.Write(buffer)
	return written + int64(n), err
}

// errLost says that the file has only a part of a list.
var errLost = errors.New("a part of what the API told could not be written, so this isn't the whole of it")

// complete says that a resource has the objects that were set and not deleted, and no
// others. It isn't so where some of them could not be written: the next whole list may be
// complete again.
func (s *Store) complete(resource string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.spare = nil
	err := s.write(s.exchange(newBatch()), resource)
	if err == nil && s.lost[resource] {
		err = errLost
	}
	delete(s.lost, resource)
	return s.explain(err)
}

// each reads the file.
func (s *Store) each(yield func(*record) error) (err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	f, err := os.Open(s.name)
	if err != nil {
		return s.explain(err)
	}
	_, err = scan(f, yield)
	return s.explain(errors.Join(err, f.Close()))
}

// names are the objects of a resource that the file has.
func (s *Store) names(resource string) (map[types.NamespacedName]bool, error) {
	list := map[types.NamespacedName]bool{}
	return list, s.each(func(r *record) error {
		namespace, name, found := strings.Cut(r.key, "/")
		if r.resource != resource || !found {
			return nil
		}
		if key := (types.NamespacedName{Namespace: namespace, Name: name}); r.kind == setRecord {
			list[key] = true
		} else {
			delete(list, key)
		}
		return nil
	})
}

// all calls yield with each saved object of a resource and returns when they were saved.
// The zero time says that nothing is, or not the whole of a list.
func (s *Store) all(resource string, yield func(value []byte) error) (saved time.Time, err error) {
	latest, complete := map[string]int64{}, false
	err = s.each(func(r *record) error {
		if r.resource != resource {
			return nil
		}
		switch saved = r.at; r.kind {
		case completeRecord:
			complete = true
		case setRecord:
			latest[r.key] = r.offset
		case deleteRecord:
			delete(latest, r.key)
		}
		return nil
	})
	if err != nil || !complete {
		return time.Time{}, err
	}
	return saved, s.each(func(r *record) error {
		if r.resource != resource || r.kind != setRecord || latest[r.key] != r.offset {
			return nil
		}
		return yield(r.value)
	})
}
