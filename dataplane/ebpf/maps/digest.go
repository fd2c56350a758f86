package maps

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/fairway-net/fairway/dataplane/ebpf/program"
)

// numBuckets is how many sums a table has. A change in the middle of a comparison leaves
// its few buckets to the next one.
const numBuckets = 4096

// digests say in a few numbers what this process wrote into the tables: a change costs
// what it changes, and to compare all of them takes no copy of what the kernel holds.
type digests struct {
	mu     sync.Mutex
	known  bool
	epoch  int // counts how often they became unknown
	tables map[program.TableName]*digest
}

// digest is that of one table, by buckets of keys.
type digest struct {
	sums   [numBuckets]uint64 // of the hashes of elements
	writes [numBuckets]uint32 // begun and ended: odd while one is under way
}

var keySeed, valueSeed = maphash.MakeSeed(), maphash.MakeSeed()

// hashOf gives the bucket of an element, and what it adds to the bucket's sum.
func hashOf[T string | []byte](key, value T) (bucket int, sum uint64) {
	var k, v uint64
	switch key := any(key).(type) {
	case string:
		k, v = maphash.String(keySeed, key), maphash.String(valueSeed, any(value).(string))
	case []byte:
		k, v = maphash.Bytes(keySeed, key), maphash.Bytes(valueSeed, any(value).([]byte))
	}
	const odd = 0x9e3779b97f4a7c15
	sum = (k ^ v*odd) * odd
	return int(k % numBuckets), sum ^ sum>>32
}

func (d *digest) add(key, value string) {
	bucket, sum := hashOf(key, value)
	d.sums[bucket] += sum
}

func (d *digest) subtract(key, value string) {
	bucket, sum := hashOf(key, value)
	d.sums[bucket] -= sum
}

// forget makes the digests unknown, until all is written anew.
func (d *digests) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known, d.tables = false, nil
	d.epoch++
}

// learn takes digests of tables that hold exactly what these say.
func (d *digests) learn(tables map[program.TableName]*digest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known, d.tables = true, tables
}

func newDigests() map[program.TableName]*digest {
	tables := map[program.TableName]*digest{}
	for _, t := range program.TableNames {
		tables[t] = &digest{}
	}
	return tables
}

// begin precedes what a plan writes.
func (d *digests) begin(p *program.Plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mark(p)
}

// end follows what a plan wrote, all of it.
func (d *digests) end(p *program.Plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known {
		return
	}
	for at, was := range p.Before {
		if was.Present {
			d.tables[at.Table].subtract(at.Key, was.Value)
		}
	}
	for t, list := range p.Put {
		last := map[string]string{}
		for _, e := range list {
			last[e.Key] = e.Value
		}
		for key, value := range last {
			d.tables[t].add(key, value)
		}
	}
	d.mark(p)
}

// mark counts a write's beginning or end.
func (d *digests) mark(p *program.Plan) {
	if !d.known {
		return
	}
	for at := range p.Before {
		bucket, _ := hashOf(at.Key, "")
		d.tables[at.Table].writes[bucket]++
	}
}

// writes are the counters of a table; nil if its digest isn't known.
func (d *digests) writes(t program.TableName) (writes []uint32, epoch int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known {
		return nil, d.epoch
	}
	return slices.Clone(d.tables[t].writes[:]), d.epoch
}

// differing are the buckets that hold something else than was written, of those that
// nobody has written to since. It is false if that isn't known any more.
func (d *digests) differing(t program.TableName, epoch int, since []uint32, found *[numBuckets]uint64) (list []int, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known || d.epoch != epoch {
		return nil, false
	}
	want := d.tables[t]
	if t == program.Prefixes && !slices.Equal(since, want.writes[:]) {
		return nil, true // who lists a trie that changes may see elements twice
	}
	for i, sum := range found {
		if still := want.writes[i]; still == since[i] && still%2 == 0 && sum != want.sums[i] {
			list = append(list, i)
		}
	}
	return list, true
}

// Drift compares what the tables hold with what was written to them, while others may
// write. It names the parts of tables that differ, but for those that change meanwhile.
// known is false if it isn't known what was written.
func (s *Store) Drift(ctx context.Context) (parts []string, known bool, err error) {
	for _, name := range program.TableNames {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		since, epoch := s.digests.writes(name)
		if since == nil {
			return nil, false, nil
		}
		var found [numBuckets]uint64
		err := s.Tables[name].eachShared(func(key, value []byte) {
			bucket, sum := hashOf(key, value)
			found[bucket] += sum
		})
		if err != nil {
			return nil, false, err
		}
		differing, known := s.digests.differing(name, epoch, since, &found)
		if !known {
			return nil, false, nil
		}
		for _, i := range differing {
			parts = append(parts, fmt.Sprintf("part %d of map %s", i, name))
		}
	}
	return parts, true, nil
}

// eachShared is each for whoever has the table while others change it.
func (t *Table) eachShared(visit func(key, value []byte)) (err error) {
	m, err := t.clone()
	if err != nil || m == nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	lent := Table{name: t.name, outer: t.outer, inner: m}
	if err := lent.each(visit); err != nil {
		return fmt.Errorf("read map %s: %w", t.name, err)
	}
	return nil
}
