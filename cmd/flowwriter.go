package cmd

import (
	"context"
	"errors"
	"time"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/flows"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/netns"
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
	if err := w.readTable(ctx); err != nil {
		return err
	}
	ns, err := netns.OfProcess(w.agent.Status.PID)
	if err != nil {
		return err
	}
	if w.follows {
		err = w.follow(ctx, ns)
	} else {
		err = ns.Do(func() error {
			return conntrack.Flows(ctx, func(f *conntrack.Flow) { w.write(f, f.Ended()) })
		})
	}
	return errors.Join(err, w.err, ns.Close())
}

// follow tells of what begins and ends until ctx is done or nobody reads any more.
func (w *flowWriter) follow(ctx context.Context, ns *netns.NS) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var events *conntrack.Events
	if err := ns.Do(func() (err error) {
		events, err = conntrack.Subscribe()
		return err
	}); err != nil {
		return err
	}
	return events.Run(ctx, func(f *conntrack.Flow, ended bool) {
		if !w.write(f, ended) && time.Since(w.read) > tableAge && w.readTable(ctx) == nil {
			w.write(f, ended)
		}
		if w.err != nil {
			stop()
		}
	}, func() {
		w.note(w.agent.Status.Node + ": connections came faster than they were read: some are missing")
	})
}

func (w *flowWriter) readTable(ctx context.Context) error {
	table, err := w.agent.Table(ctx)
	w.read = time.Now()
	if err == nil {
		w.table = table
	}
	return err
}

// write tells of a flow; it reports whether it is one to a Service.
func (w *flowWriter) write(f *conntrack.Flow, ended bool) bool {
	r, known := flows.Of(w.agent.Status.Node, w.table, w.names(), f, ended)
	if known {
		w.err = w.tell(r)
	}
	return known
}
