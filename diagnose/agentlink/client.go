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
	"net/url"
	"time"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/dump"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/model"
)

// answerTimeout is how long an agent has time to answer, and scanTimeout how long where it
// has to read its kernel or to send packets.
const (
	answerTimeout = 3 * time.Second
	scanTimeout   = 30 * time.Second
)

// Client asks an agent.
type Client struct {
	// At says for people where the agent is asked: the path of a socket, a pod, a node.
	At string
	// Path is that of the socket of an agent on this machine; "" for one elsewhere.
	Path string

	base string // what comes before the paths of the API
	// reads says that what changes nothing is asked by GET, which agents before that
	// can't answer. Those can't be reached so.
	reads bool
	http  http.Client
}

// unixBase is made up: an agent's socket has no name.
const unixBase = "http://agent"

// OverSocket is Elsewhere for a way that ends at the agent's socket.
func OverSocket(at string, through http.RoundTripper) *Client {
	return Elsewhere(at, through, unixBase)
}

// New makes a client of an agent on this machine; it connects when something is asked.
func New(path string) *Client {
	var d net.Dialer
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "unix", path)
	}}
	c := OverSocket(path, transport)
	c.Path = path
	return c
}

// Elsewhere makes a client of an agent that is reached otherwise: at says how, for
// people, and base is the URL that comes before the paths of the API.
func Elsewhere(at string, through http.RoundTripper, base string) *Client {
	return &Client{At: at, base: base, reads: base != unixBase, http: http.Client{Transport: through, Timeout: answerTimeout}}
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
	if c.reads { // so that the right to read is enough
		data, err := json.Marshal(request)
		if err != nil {
			return v, fmt.Errorf("ask the agent: %w", err)
		}
		return v, c.ask(ctx, http.MethodGet, decidePath+"?question="+url.QueryEscape(string(data)), nil, &v)
	}
	return v, c.ask(ctx, http.MethodPost, decidePath, request, &v)
}

// Objects asks what the kernel of the agent's node holds of a Service ("namespace/name"),
// or of all for "", compared with what it should hold.
func (c *Client) Objects(ctx context.Context, service string) (*dump.Report, error) {
	var r dump.Report
	err := c.askSlowly(ctx, http.MethodGet, objectsPath+"?service="+url.QueryEscape(service), nil, &r)
	return &r, err
}

// Changes asks for the latest changes that are in force, the latest last.
func (c *Client) Changes(ctx context.Context) ([]Change, error) {
	var list []Change
	return list, c.ask(ctx, http.MethodGet, changesPath, nil, &list)
}

// Traffic asks what was counted of a Service ("namespace/name").
func (c *Client) Traffic(ctx context.Context, service string) (Traffic, error) {
	var t Traffic
	return t, c.ask(ctx, http.MethodGet, trafficPath+"?service="+url.QueryEscape(service), nil, &t)
}

// Host asks for the facts of the agent's machine.
func (c *Client) Host(ctx context.Context) (*doctor.Host, error) {
	var h doctor.Host
	err := c.askSlowly(ctx, http.MethodGet, hostPath, nil, &h)
	return &h, err
}

// Announced asks what the node says of load balancer addresses.
func (c *Client) Announced(ctx context.Context) (announce.Report, error) {
	var r announce.Report
	return r, c.ask(ctx, http.MethodGet, announcedPath, nil, &r)
}

// askSlowly is ask for what may take longer.
func (c *Client) askSlowly(ctx context.Context, method, path string, body, into any) error {
	slow := *c
	slow.http.Timeout = scanTimeout
	return slow.ask(ctx, method, path, body, into)
}

// ask makes a request and reads the answer.
func (c *Client) ask(ctx context.Context, method, path string, body, into any) (err error) {
	var sent bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&sent).Encode(body); err != nil {
			return fmt.Errorf("ask the agent: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, &sent)
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask the agent at %s: %w", c.At, withoutURL(err))
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("ask the agent at %s: %w", c.At, err)
	}
	if response.StatusCode != http.StatusOK {
		return c.refusal(response, data)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read the answer of the agent at %s: %w", c.At, err)
	}
	return nil
}

// withoutURL is why a request failed, without its URL, which says nothing to people.
func withoutURL(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		if failed.Timeout() {
			return errLate
		}
		return failed.Err
	}
	return err
}

// refusal is an answer that isn't one: of the agent, or of an API server on the way to
// it (a metav1.Status).
func (c *Client) refusal(response *http.Response, data []byte) error {
	var p problem
	var status struct{ Message string }
	if err := json.Unmarshal(data, &p); err != nil || p.Error == "" {
		p.Error = response.Status
		if err := json.Unmarshal(data, &status); err == nil && status.Message != "" {
			p.Error = status.Message
		}
	}
	if p.Version != "" {
		p.Error += " (it is version " + p.Version + ")"
	}
	return fmt.Errorf("ask the agent at %s: %s", c.At, p.Error)
}
