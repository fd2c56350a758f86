// Package live tells of connections to Services as agents tell of them.
package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/flows"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/model"
)

// tableAge is how old the table gets before a connection that it doesn't know has it
// read again.
const tableAge = 15 * time.Second

// teller tells of the connections of one node.
type teller struct {
	agent   agentlink.Found
	names   func() flows.Names
	follows bool                     // those that begin and end; else those that there are
	tell    func(flows.Record) error // an error ends it
	note    func(string)             // what is missing

	table *model.Table
	read  time.Time // when the table was
	err   error     // of telling
}

func (t *teller) run(ctx context.Context) error {
	if t.table == nil {
		if err := t.readTable(ctx); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	err := t.agent.Flows(ctx, t.follows, flow.Listener{
		Event: func(e flow.Event) {
			if !t.write(e) && t.follows && time.Since(t.read) > tableAge && t.readTable(ctx) == nil {
				t.write(e)
			}
			if t.err != nil {
				stop()
			}
		},
		Note: func(text string) { t.note(t.agent.Status.Node + ": " + text) },
	})
	if err != nil && t.follows { // other nodes' go on
		t.note(fmt.Sprintf("%s: %v", t.agent.Status.Node, err))
	}
	return errors.Join(err, t.err)
}

func (t *teller) readTable(ctx context.Context) error {
	table, err := t.agent.Table(ctx)
	t.read = time.Now()
	if err == nil {
		t.table = table
	}
	return err
}

// knows reports whether a Service ("namespace/name") is in force on the node.
func (t *teller) knows(service string) bool {
	if t.table == nil {
		return false
	}
	for front := range t.table.Frontends() {
		if compile.ServiceOf(front.Name).String() == service {
			return true
		}
	}
	return false
}

// write tells of a connection; it reports whether it is one to a Service.
func (t *teller) write(e flow.Event) bool {
	r, known := flows.Of(t.agent.Status.Node, t.table, t.names(), e)
	if known && t.err == nil {
		t.err = t.tell(r)
	}
	return known
}
