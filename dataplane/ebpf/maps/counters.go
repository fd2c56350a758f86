package maps

import (
	"context"
	"errors"
	"strings"

	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// FrontendCounts reads what was counted of frontends. Bytes stay 0: they are counted of backends.
func FrontendCounts(ctx context.Context, dir string) (list []kernel.Count, err error) {
	elements, err := readPinned(dir, program.Frontends)
	if err != nil || elements == nil {
		return nil, err
	}
	err = eachCount(ctx, dir, elements, func(k program.Unpacker, c counters) {
		if c.Connections+c.NotAllowed+c.NoBackend > 0 {
			list = append(list, kernel.Count{
				Frontend: k.Key(), Connections: c.Connections,
				Refused: c.NotAllowed + c.NoBackend, NotAllowed: c.NotAllowed, NoBackend: c.NoBackend,
			})
		}
	})
	return list, err
}

// eachCount visits the elements of a table whose values begin with the id of
// counters, with what these have counted.
func eachCount(ctx context.Context, dir string, elements map[string]string, visit func(key program.Unpacker, c counters)) (err error) {
	reader, err := openCounts(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.close()) }()
	for key, value := range elements {
		if err := ctx.Err(); err != nil {
			return err
		}
		v := program.Unpacker(value)
		c, err := reader.read(v.U32())
		if err != nil {
			return err
		}
		visit(program.Unpacker(key), c)
	}
	return nil
}

// BackendCounts reads what was counted of backends. Packets and bytes are those of
// the packet path: connections that are made at the socket go past whatever could
// count them.
func BackendCounts(ctx context.Context, dir string, of *model.Table) (list []kernel.BackendCount, err error) {
	ids, err := readPinned(dir, program.Names)
	if err != nil || ids == nil {
		return nil, err
	}
	elements, err := readPinned(dir, program.Members)
	if err != nil || elements == nil {
		return nil, err
	}
	byName := make(map[string]model.PoolID, len(ids))
	for pool := range of.Pools() {
		byName[pool.ID.String()] = pool.ID
	}
	known := make(map[uint32]model.PoolID, len(ids))
	for key, value := range ids {
		k := program.Unpacker(key)
		if pool, there := byName[strings.TrimRight(value, "\x00")]; there {
			known[k.U32()] = pool
		}
	}
	err = eachCount(ctx, dir, elements, func(k program.Unpacker, c counters) {
		if pool, there := known[k.U32()]; there && c.Connections+c.Packets > 0 {
			list = append(list, kernel.BackendCount{
				Pool: pool, Backend: k.Endpoint(), Connections: c.Connections, Packets: c.Packets, Bytes: c.Bytes,
			})
		}
	})
	return list, err
}
