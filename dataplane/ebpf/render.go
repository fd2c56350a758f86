package ebpf

import (
	"context"
	"fmt"
	"strings"

	"github.com/fairway-net/fairway/dataplane/ebpf/packet"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Render says what the plane would put into the kernel for a table: see
// dataplane.Kind.
func Render(t *model.Table, options kernel.Options) ([]kernel.Object, error) {
	t = model.Expand(t)
	st := program.NewState(options.Scheduler)
	if err := st.Build(t); err != nil {
		return nil, err
	}
	c := program.NewContents()
	for e := range st.All(t) {
		c[e.Table][e.Key] = e.Value
	}
	list := program.Describe(c)
	if sock.HasCgroup(options) {
		for hook := range sock.Hooks {
			list = append(list, sock.ProgramObject(hook))
		}
	}
	list = append(list, packet.PacketObjects()...)
	kernel.SortObjects(list)
	return list, nil
}

// Script says the same as lines for people: no usual tool takes them as input.
func Script(t *model.Table, options kernel.Options) (map[string]string, error) {
	list, err := Render(t, options)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, o := range list {
		fmt.Fprintln(&b, o)
	}
	return map[string]string{"ebpf.txt": b.String()}, nil
}

// objects reads back what the kernel holds: see dataplane.Plane.Read.
func (p *Plane) objects(ctx context.Context) ([]kernel.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.opening.Lock()
	defer p.opening.Unlock()
	var programs []kernel.Object
	for _, path := range p.paths {
		list, err := path.Objects(p.dir)
		if err != nil {
			return nil, err
		}
		programs = append(programs, list...)
	}
	if p.store == nil && len(programs) == 0 {
		return nil, nil
	}
	if err := p.open(); err != nil {
		return nil, err
	}
	c, err := p.store.Read()
	if err != nil {
		return nil, err
	}
	list := append(programs, program.Describe(c)...)
	kernel.SortObjects(list)
	return list, nil
}
