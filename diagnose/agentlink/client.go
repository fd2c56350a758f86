package agentlink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/model"
)

// patience is how long an agent has time to answer.
const patience = 3 * time.Second

// Client asks the agent at a socket.
type Client struct {
	Path string // of the socket
	http http.Client
}

// New makes a client; it connects when something is asked.
func New(path string) *Client {
	var d net.Dialer
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "unix", path)
	}}
	return &Client{Path: path, http: http.Client{Transport: transport, Timeout: patience}}
}

// Status asks how the agent is.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.ask(ctx, http.MethodGet, statusPath, nil, &s)
}

// Table asks for the table in force.
func (c *Client) Table(ctx context.Context) (*model.Table, error) {
	var d model.Delta
	if err := c.ask(ctx, http.MethodGet, tablePath, nil, &d); err != nil {
		return nil, err
	}
	if d.Settings == nil {
		d.Settings = &model.Settings{}
	}
	return d.Apply(model.NewTable()), nil
}

// Decide asks what happens to packets to these keys.
func (c *Client) Decide(ctx context.Context, keys []model.Key, from explain.Source) (explain.View, error) {
	request := decideRequest{From: from}
	for _, k := range keys {
		request.Keys = append(request.Keys, k.String())
	}
	var v explain.View
	return v, c.ask(ctx, http.MethodPost, decidePath, request, &v)
}

// ask makes a request and reads the answer.
func (c *Client) ask(ctx context.Context, method, path string, body, into any) (err error) {
	var sent bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&sent).Encode(body); err != nil {
			return fmt.Errorf("ask the agent: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, &sent)
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask the agent at %s: %w", c.Path, errors.Unwrap(err)) // without the made-up URL
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("ask the agent at %s: %w", c.Path, err)
	}
	if response.StatusCode != http.StatusOK {
		return c.refusal(response, data)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read the answer of the agent at %s: %w", c.Path, err)
	}
	return nil
}

// refusal is an answer that isn't one.
func (c *Client) refusal(response *http.Response, data []byte) error {
	var p problem
	if err := json.Unmarshal(data, &p); err != nil || p.Error == "" {
		p.Error = response.Status
	}
	if p.Version != "" {
		p.Error += " (it is version " + p.Version + ")"
	}
	return fmt.Errorf("ask the agent at %s: %s", c.Path, p.Error)
}
