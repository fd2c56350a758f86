package cmd

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

// flowWriter tells of the connections of one node.
type flowWriter struct {
	agent   agentlink.Found
	names   func() flows.Names
	follows bool                     // those that begin and end; else those that there are
	tell    func(flows.Record) error // an error ends it
	note    func(string)             // what is missing

	table *model.Table
	read  time.Time // when the table was
	err   error     // of telling
}

func (w *flowWriter) run(ctx context.Context) error {
	if w.table == nil {
		if err := w.readTable(ctx); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	err := w.agent.Flows(ctx, w.follows, flow.Listener{
		Event: func(e flow.Event) {
			if !w.write(e) && w.follows && time.Since(w.read) > tableAge && w.readTable(ctx) == nil {
				w.write(e)
			}
			if w.err != nil {
				stop()
			}
		},
		Note: func(text string) { w.note(w.agent.Status.Node + ": " + text) },
	})
	if err != nil && w.follows { // other nodes' go on
		w.note(fmt.Sprintf("%s: %v", w.agent.Status.Node, err))
	}
	return errors.Join(err, w.err)
}

func (w *flowWriter) readTable(ctx context.Context) error {
	table, err := w.agent.Table(ctx)
	w.read = time.Now()
	if err == nil {
		w.table = table
	}
	return err
}

// knows reports whether a Service ("namespace/name") is in force on the node.
func (w *flowWriter) knows(service string) bool {
	if w.table == nil {
		return false
	}
	for front := range w.table.Frontends() {
		if compile.ServiceOf(front.Name).String() == service {
			return true
		}
	}
	return false
}

// write tells of a connection; it reports whether it is one to a Service.
func (w *flowWriter) write(e flow.Event) bool {
	r, known := flows.Of(w.agent.Status.Node, w.table, w.names(), e)
	if known && w.err == nil {
		w.err = w.tell(r)
	}
	return known
}
