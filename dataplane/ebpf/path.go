package ebpf

import (
	"context"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// path is one of the two ways on which connections get their backend: its
// programs, and what they remember of connections.
type path interface {
	// Spec is what the path's programs are made from. Its maps are in the
	// node's store.
	Spec() *ebpf.CollectionSpec
	// Load makes the programs ready to be attached, if they aren't. It changes
	// nothing for anybody.
	Load(s *maps.Store) error
	// Attach makes the programs of this version run where they belong, if they
	// don't. Tables are ready when it is called. It is called with every
	// comparison, and when settings have changed.
	Attach(s *maps.Store, want *model.Table) error
	// GC brings connections into line after the tables have changed.
	GC(ctx context.Context, s *maps.Store, c program.Transition) error
	// Objects lists the programs that run, as programs does those that should.
	Objects(dir string) ([]kernel.Object, error)
	// Remove detaches the programs.
	Remove(dir string) error
	// Close ends what the path does in the background.
	Close() error
}
