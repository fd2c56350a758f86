package ebpf

import (
	"context"
	"errors"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/kernel"
)

// Remove implements dataplane.Plane. No connection passes through this process.
func (p *Plane) Remove(ctx context.Context, _ kernel.Removal) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	moved := errors.Join(migrate.Move(ctx, p.Connections(), nil), p.steps.At("connections moved"))
	p.opening.Lock()
	defer p.opening.Unlock()
	p.endGrowing()
	errs := []error{moved, p.sockets.Remove(p.dir), p.steps.At("socket path removed")}
	if moved == nil { // or else the programs go on with what couldn't be moved
		errs = append(errs, p.packets.Remove(p.dir), p.steps.At("packet path removed"))
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	p.store, p.state, p.applied, p.collected = nil, nil, nil, nil
	if err := errors.Join(errs...); err != nil {
		return err // the pins lead the next attempt to what is left
	}
	return pins.Remove(p.dir)
}
