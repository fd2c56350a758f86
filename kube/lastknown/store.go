// Package lastknown keeps on disk what an agent last knew of the API, so that a
// machine that boots while no server answers forwards as it did before.
//
//   - store.go: the file, a bbolt database with a bucket for each resource
//   - keep.go: how watches fill it, and what they get from it
package lastknown

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// lockTimeout bounds the wait for another agent that has the file.
const lockTimeout = time.Second

// savedKey is where a bucket has the time of its last change. No object has
// this name: those have a slash.
var savedKey = []byte("saved")

// completeKey is in a bucket that holds a whole list of its resource, and not a part.
var completeKey = []byte("complete")

// Store is the file. It is open only while it is read or written: an open one
// counts as memory of the process. Methods may be called from several goroutines.
type Store struct {
	name string

	mu      sync.Mutex
	dirty   map[string]map[string][]byte // by resource and key; nil deletes
	bytes   int                          // of dirty values
	writing sync.Mutex                   // one flush after the other
}

// File is where what a node last knew is kept in a directory.
func File(dir, node string) string { return filepath.Join(dir, "lastknown-"+node+".db") }

// Open opens the file of a node in dir, or makes it.
func Open(dir, node string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep what is known: %w", err)
	}
	s := &Store{name: File(dir, node), dirty: map[string]map[string][]byte{}}
	return s, s.with(func(*bolt.DB) error { return nil })
}

// Close writes what has changed.
func (s *Store) Close() error { return s.flush() }

func (s *Store) with(do func(*bolt.DB) error) error {
	db, err := bolt.Open(s.name, 0o600, &bolt.Options{Timeout: lockTimeout})
	if err == nil {
		err = errors.Join(do(db), db.Close())
	}
	if err != nil {
		return fmt.Errorf("use %s: %w", s.name, err)
	}
	return nil
}

// set remembers a change until the next flush, which it does itself if there is
// much to write.
func (s *Store) set(resource string, name types.NamespacedName, value []byte) error {
	if s.add(resource, name.String(), value) < flushBytes {
		return nil
	}
	return s.flush()
}

func (s *Store) add(resource, key string, value []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dirty[resource] == nil {
		s.dirty[resource] = map[string][]byte{}
	}
	s.bytes += len(value) - len(s.dirty[resource][key])
	s.dirty[resource][key] = value
	return s.bytes
}

// flush writes the changes. If that fails they are forgotten: the file is then
// older than it could be, and serves nevertheless.
func (s *Store) flush() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	dirty := s.dirty
	s.dirty, s.bytes = map[string]map[string][]byte{}, 0
	s.mu.Unlock()
	if len(dirty) == 0 {
		return nil
	}
	return s.with(func(db *bolt.DB) error {
		return db.Update(func(tx *bolt.Tx) error {
			for resource, changes := range dirty {
				if err := apply(tx, resource, changes); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func apply(tx *bolt.Tx, resource string, changes map[string][]byte) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(resource))
	if err != nil {
		return err
	}
	for key, value := range changes {
		if value == nil {
			err = bucket.Delete([]byte(key))
		} else {
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
	s.writing.Lock()
	defer s.writing.Unlock()
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
	s.writing.Lock()
	defer s.writing.Unlock()
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
	s.writing.Lock()
	defer s.writing.Unlock()
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
