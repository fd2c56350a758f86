package packet

import (
	"errors"
	"time"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/internal/flow"
)

// List tells of the connections of the node whose pins are in a directory.
func List(dir string, tell func(flow.Event)) error {
	pinned, err := maps.OpenResizable(dir, maps.ConnsMap)
	if err != nil || pinned == nil {
		return err
	}
	all, err := (&connTable{m: pinned}).translations()
	for _, one := range all {
		tell(flow.Event{Kind: flow.Open, Time: time.Now(), Proto: one.proto, Client: one.client, Frontend: one.frontend, Backend: one.backend, Replied: one.replied})
	}
	return errors.Join(err, pinned.Close())
}
