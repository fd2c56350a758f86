package apiserver

import (
	"context"
	"sync"
	"time"

	"github.com/fairway-net/fairway/apiserver/identity"
	"github.com/fairway-net/fairway/apiserver/storage"
)

// tokenReadPeriod is the time between two reads of all server tokens.
const tokenReadPeriod = time.Second / unknownPerSecond

// tokenReads finds server tokens. They are in the store alone, and whoever has no
// credential may ask for any: so all who ask share a read, which begins after they asked,
// and reads don't follow each other faster than tokenReadPeriod.
type tokenReads struct {
	list func(context.Context) ([]identity.ServerToken, error)

	mu    sync.Mutex
	next  *tokenRead // that hasn't begun
	began time.Time  // the last one
}

// tokenRead is a read of all tokens; what it found may be looked at when it is done.
type tokenRead struct {
	done   chan struct{}
	tokens map[string]*identity.ServerToken
	err    error
}

// find returns a token by its ID; nil if there is none.
func (r *tokenReads) find(ctx context.Context, id string) (*identity.ServerToken, error) {
	read := r.join()
	select {
	case <-read.done:
		return read.tokens[id], read.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// join returns the read that begins next.
func (r *tokenReads) join() *tokenRead {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &tokenRead{done: make(chan struct{})}
		time.AfterFunc(time.Until(r.began.Add(tokenReadPeriod)), r.run)
	}
	return r.next
}

// run makes the read that is next. It belongs to nobody's request.
func (r *tokenReads) run() {
	r.mu.Lock()
	read := r.next
	r.next, r.began = nil, time.Now()
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), etcdTimeout)
	defer cancel()
	var list []identity.ServerToken
	err := storage.DespiteElections(ctx, "find a server token", func(ctx context.Context) (err error) {
		list, err = r.list(ctx)
		return err
	})
	read.tokens, read.err = make(map[string]*identity.ServerToken, len(list)), err
	for i := range list {
		read.tokens[list[i].ID] = &list[i]
	}
	close(read.done)
}
