package nftables

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// generationCache tells whether nobody but this plane has changed nf_tables since all of it was
// known: then comparing has nothing to find. It is read all the same from time to
// time, when what this plane leaves there for a while goes, too (see spareChain).
// Several may set it at once; a late one sets a generation that is over.
type generationCache struct {
	generation atomic.Uint32 // of nf_tables when it held what was applied; 0 if that isn't known
	readAt     atomic.Int64  // when it was last read, in seconds
}

// in reports whether all is known in this generation.
func (c *generationCache) in(generation uint32) bool {
	return c.generation.Load() == generation && time.Since(time.Unix(c.readAt.Load(), 0)) < kernel.ReadingPeriod
}

// forget gives what was known, too.
func (c *generationCache) forget() (generation uint32) { return c.generation.Swap(0) }

// read notes that all was read in a generation, and the batch committed in that.
func (c *generationCache) read(generation uint32, b *batch) {
	c.readAt.Store(time.Now().Unix())
	c.committed(generation, b)
}

// committed notes that all was known in a generation, and the batch committed in that.
func (c *generationCache) committed(generation uint32, b *batch) {
	if generation != 0 && b.size > 0 {
		generation++
	}
	c.generation.Store(generation)
}

// commitChange commits a batch that doesn't depend on what others do to nf_tables.
// If all of it was known before, it is afterwards.
func (p *Plane) commitChange(b *batch) error {
	known := p.cache.forget()
	var err error
	if b.isLarge() {
		generation, failed := p.socket.generation()
		if failed != nil {
			return failed
		}
		err = p.commitQuietly(b, generation)
		if generation != known {
			known = 0
		}
	} else {
		b.onlyAt(known)
		err = b.commit()
	}
	if errors.Is(err, unix.ERESTART) { // others are busy too
		known = 0
		b.onlyAt(0)
		err = b.commit()
	}
	if err == nil {
		p.cache.committed(known, b)
	}
	return err
}
