package ebpf

import (
	"context"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// path is one of the two ways on which connections get their backend: its
// programs, and what they remember of connections.
type path interface {
	// object is what the path's programs are made from. Its maps are in the
	// node's store.
	object() *ebpf.CollectionSpec
	// load makes the programs ready to be attached, if they aren't. It changes
	// nothing for anybody.
	load(s *store) error
	// attach makes the programs of this version run where they belong, if they
	// don't. Tables are ready when it is called. It is called with every
	// comparison, and when settings have changed.
	attach(s *store, want *model.Table) error
	// sweep brings connections into line after the tables have changed.
	sweep(ctx context.Context, s *store, c changed) error
	// objects lists the programs that run, as programs does those that should.
	objects(dir string) ([]kernel.Object, error)
	// remove detaches the programs.
	remove(dir string) error
	// close ends what the path does in the background.
	close() error
}

// changed is what connections are to be brought into line with.
type changed struct {
	old, want *model.Table // a nil old says that it isn't known what they were in line with
	gone      []uint32     // the ids of backends that are in old and not in want
	verify    bool         // bring into line what was missed, too
}
