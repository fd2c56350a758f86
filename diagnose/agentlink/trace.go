package agentlink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/fairway-net/fairway/diagnose/trace"
)

// streamTrace answers POST /v1/trace: a trace.Line in JSON a line, until the client
// goes, which is the end of the trace.
func streamTrace(w http.ResponseWriter, r *http.Request, agent Agent, fail func(http.ResponseWriter, int, string)) {
	var request trace.Request
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestRequest)).Decode(&request)
	if err == nil {
		err = request.Validate()
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, flush := json.NewEncoder(w), http.NewResponseController(w)
	tell := func(l trace.Line) {
		if err := errors.Join(out.Encode(l), flush.Flush()); err != nil {
			stop() // nobody reads any more
		}
	}
	if err := agent.Trace(ctx, request, tell); err != nil && ctx.Err() == nil {
		tell(trace.Line{Error: err.Error()})
	}
}

// Trace has the agent follow packets on its node until ctx is done. Lines come one call
// at a time.
func (c *Client) Trace(ctx context.Context, r trace.Request, tell func(trace.Line)) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+tracePath, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	response, err := (&http.Client{Transport: c.http.Transport}).Do(request) // without a limit of time
	if err != nil {
		return c.ended(ctx, withoutURL(err))
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode != http.StatusOK {
		data, err := io.ReadAll(io.LimitReader(response.Body, largestRequest))
		return errors.Join(c.refusal(response, data), err)
	}
	for lines := json.NewDecoder(response.Body); ; {
		var l trace.Line
		if err := lines.Decode(&l); err != nil {
			return c.ended(ctx, err)
		}
		if l.Error != "" {
			return fmt.Errorf("the agent at %s: %s", c.At, l.Error)
		}
		tell(l)
	}
}
