// Package lastknown keeps on disk what an agent last knew of the API, so that a
// machine that boots while no server answers forwards as it did before.
//
//   - store.go: the file, a bbolt database with a bucket for each resource
//   - keep.go: how watches fill it, and what they get from it
package lastknown

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/types"
)

// flushPeriod is how long changes are gathered before they are written. What a
// crash loses of them the API tells again.
const flushPeriod = time.Second

// flushBytes is how many bytes of changes are gathered at most.
const flushBytes = 1 << 20

// mapped is how many bytes of addresses the file has from the start. It takes no memory,
// and bbolt copies all that it has read whenever a file outgrows its addresses.
const mapped = 256 << 20

// lockTimeout bounds the wait for another agent that has the file.
const lockTimeout = time.Second

// savedKey is where a bucket has the time of its last change. No object has
// this name: those have a slash.
var savedKey = []byte("saved")

// completeKey is in a bucket that holds a whole list of its resource, and not a part.
var completeKey = []byte("complete")

// Store is the file. It is open only while it is read or written, since an open one
// counts as memory of the process, and from one flush of a long list to the next.
// Methods may be called from several goroutines.
type Store struct {
	name string

	mu    sync.Mutex
	dirty *batch

	writing sync.Mutex // one flush after the other
	// In the middle of a long list the file stays open, and a batch that is written is
	// used again; else both are nil.
	db    *bolt.DB
	spare *batch
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
func File(dir, node string) string { return filepath.Join(dir, "lastknown-"+node+".db") }

// Open opens the file of a node in dir, or makes it.
func Open(dir, node string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep what is known: %w", err)
	}
	s := &Store{name: File(dir, node), dirty: newBatch()}
	return s, s.with(func(*bolt.DB) error { return nil })
}

// Close writes what has changed.
func (s *Store) Close() error { return s.flush() }

// with opens the file for a moment, unless it is open.
func (s *Store) with(do func(*bolt.DB) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	err := s.open()
	if err == nil {
		err = errors.Join(do(s.db), s.close())
	}
	return s.explain(err)
}

// open and close are called with writing locked.
func (s *Store) open() (err error) {
	if s.db == nil {
		s.db, err = bolt.Open(s.name, 0o600, &bolt.Options{Timeout: lockTimeout, InitialMmapSize: mapped})
	}
	return err
}

func (s *Store) close() error {
	if s.db == nil {
		return nil
	}
	err := s.db.Close()
	s.db = nil
	return err
}

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
	return s.explain(errors.Join(s.write(s.exchange(newBatch())), s.close()))
}

// flushMore is flush in the middle of a long list.
func (s *Store) flushMore() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	dirty := s.exchange(cmp.Or(s.spare, newBatch()))
	err := s.write(dirty)
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

// write is called with writing locked.
func (s *Store) write(dirty *batch) error {
	if dirty.empty() {
		return nil
	}
	if err := s.open(); err != nil {
		return err
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		for resource, changes := range dirty.changes {
			if err := apply(tx, resource, changes); err != nil {
				return err
			}
		}
		return nil
	})
}

func apply(tx *bolt.Tx, resource string, changes map[string][]byte) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(resource))
	if err != nil {
		return err
	}
	// In order, each goes behind the last; else bbolt moves all that are behind it.
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		value := changes[key]
		if value == nil {
			err = bucket.Delete([]byte(key))
		} else if !bytes.Equal(bucket.Get([]byte(key)), value) { // else the page that has it need not be written
			err = bucket.Put([]byte(key), value)
		}
		if err != nil {
			return err
		}
	}
	return touch(bucket)
}

// complete says that a resource has the objects that were set and not deleted, and no
// others.
func (s *Store) complete(resource string) error {
	if err := s.flush(); err != nil {
		return err
	}
	return s.with(func(db *bolt.DB) error {
		return db.Update(func(tx *bolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte(resource))
			if err != nil {
				return err
			}
			return errors.Join(touch(bucket), bucket.Put(completeKey, []byte{1}))
		})
	})
}

// names are the objects of a resource that the file has.
func (s *Store) names(resource string) (map[types.NamespacedName]bool, error) {
	list := map[types.NamespacedName]bool{}
	return list, s.with(func(db *bolt.DB) error {
		return db.View(func(tx *bolt.Tx) error {
			bucket := tx.Bucket([]byte(resource))
			if bucket == nil {
				return nil
			}
			return bucket.ForEach(func(key, _ []byte) error {
				if namespace, name, found := strings.Cut(string(key), "/"); found {
					list[types.NamespacedName{Namespace: namespace, Name: name}] = true
				}
				return nil
			})
		})
	})
}

// isMark reports whether a key is no object's.
func isMark(key []byte) bool { return bytes.Equal(key, savedKey) || bytes.Equal(key, completeKey) }

// touch notes that a bucket has changed.
func touch(bucket *bolt.Bucket) error {
	now, err := time.Now().MarshalBinary()
	if err != nil {
		return err
	}
	return bucket.Put(savedKey, now)
}

// all calls yield with each saved object of a resource and returns when they were saved.
// The zero time says that nothing is, or not the whole of a list.
func (s *Store) all(resource string, yield func(value []byte) error) (saved time.Time, err error) {
	err = s.with(func(db *bolt.DB) error {
		return db.View(func(tx *bolt.Tx) error {
			bucket := tx.Bucket([]byte(resource))
			if bucket == nil || bucket.Get(completeKey) == nil {
				return nil
			}
			if err := saved.UnmarshalBinary(bucket.Get(savedKey)); err != nil {
				return err
			}
			return bucket.ForEach(func(key, value []byte) error {
				if isMark(key) {
					return nil
				}
				return yield(value)
			})
		})
	})
	return saved, err
}
