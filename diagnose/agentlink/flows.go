package agentlink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/fairway-net/fairway/internal/flow"
)

// streamFlows answers GET /v1/flows?follow=true: a JSON object a line, until the client
// goes. That the connection is open is what the agent reads for.
func streamFlows(w http.ResponseWriter, r *http.Request, agent Agent) {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, flush := json.NewEncoder(w), http.NewResponseController(w)
	follow := r.FormValue("follow") == "true"
	tell := func(t told) {
		err := out.Encode(t)
		if err == nil && follow {
			err = flush.Flush()
		}
		if err != nil {
			stop() // nobody reads any more
		}
	}
	err := agent.Flows(ctx, follow, flow.Listener{
		Event: func(e flow.Event) { tell(told{Event: &e}) },
		Note:  func(text string) { tell(told{Note: text}) },
		Began: func() { tell(told{Began: true}) },
	})
	if err != nil && ctx.Err() == nil {
		tell(told{Error: err.Error()})
	}
}

// Flows asks for connections: those that there are, or those that begin and end until
// ctx is done.
func (c *Client) Flows(ctx context.Context, follow bool, to flow.Listener) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s%s?follow=%t", c.base, flowsPath, follow), nil)
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	response, err := (&http.Client{Transport: c.http.Transport}).Do(request) // without a limit of time
	if err != nil {
		return c.ended(ctx, err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode != http.StatusOK {
		data, err := io.ReadAll(io.LimitReader(response.Body, largestRequest))
		return errors.Join(c.refusal(response, data), err)
	}
	for lines := json.NewDecoder(response.Body); ; {
		var t told
		err := lines.Decode(&t)
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && !follow:
			return nil
		default:
			return c.ended(ctx, err)
		}
		switch {
		case t.Error != "":
			return fmt.Errorf("the agent at %s: %s", c.At, t.Error)
		case t.Began:
			to.Begin()
		case t.Note != "":
			to.Note(t.Note)
		case t.Event != nil:
			to.Event(*t.Event)
		}
	}
}

// ended is why nothing more comes; nil if that was asked for.
func (c *Client) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the agent at %s tells nothing more: %w", c.At, err)
}
