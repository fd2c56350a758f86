package haproxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// A log's line, and how much haproxy may send before it is read: more is lost, which
// haproxy counts, since requests don't wait for the log.
const (
	maxLine   = 60 << 10
	logBuffer = 4 << 20
)

// logged is a line of haproxy's log.
type logged struct {
	Client, Method, Host, Path, Query, Referer, Agent, Protocol, Frontend, Server, End string

	Status int
	Bytes  int64
	Took   int64 // milliseconds
}

// logFormat is a line of the log. All that clients say is encoded.
func logFormat() string {
	text := func(name, sample string) string { return fmt.Sprintf(`\"%s\":\"%%[%s,json(utf8s)]\"`, name, sample) }
	fields := []string{
		`\"Client\":\"%ci\"`, text("Method", "capture.req.method"), text("Host", "var(txn.host)"), text("Path", "var(txn.path)"),
		text("Query", "var(txn.query)"), text("Referer", "var(txn.referer)"), text("Agent", "var(txn.agent)"),
		text("Protocol", "capture.req.ver"), `\"Frontend\":\"%f\"`, `\"Server\":\"%si:%sp\"`, `\"End\":\"%ts\"`,
		`\"Status\":%ST`, `\"Bytes\":%B`, `\"Took\":%Ta`,
	}
	return `log-format "{` + strings.Join(fields, ",") + `}"`
}

// listenLog takes in haproxy's log.
func (e *Engine) listenLog() error {
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: e.logSocket(), Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("listen for haproxy's log: %w", err)
	}
	_ = c.SetReadBuffer(logBuffer) // the system's limit holds
	e.lines = c
	e.threads.Go(func() {
		buffer := make([]byte, maxLine)
		for {
			n, err := c.Read(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				e.report(buffer[:n])
			}
		}
	})
	return nil
}

func (e *Engine) logSocket() string { return e.folder + "/log" }

// logTo is where haproxy logs; "" if nobody is told.
func (e *Engine) logTo() string {
	if e.options.Access == nil {
		return ""
	}
	return e.logSocket()
}

// noted keeps what only the log needs of a request, before anything answers it.
func (c *config) noted() {
	c.add("http-request set-var(txn.query) query")
	c.add("http-request set-var(txn.referer) req.fhdr(referer)")
	c.add("http-request set-var(txn.agent) req.fhdr(user-agent)")
}

// unlessDash is a text of the log; a dash stands for none.
func unlessDash(text string) string {
	if text == "-" {
		return ""
	}
	return text
}

// report reports one request.
func (e *Engine) report(line []byte) {
	if len(line) == 0 || line[0] != '{' { // haproxy's own
		e.log.Debug("haproxy's message", "line", strings.TrimSpace(string(line)))
		return
	}
	var l logged
	if err := json.Unmarshal(line, &l); err != nil {
		e.log.Warn("a line of haproxy's log could not be read", "line", string(line), "error", err)
		return
	}
	took := time.Duration(l.Took) * time.Millisecond
	a := &model.Access{
		Time: time.Now().Add(-took), Took: took, Method: l.Method, Host: strings.TrimPrefix(l.Host, "-"), Path: l.Path, Protocol: l.Protocol,
		Query: unlessDash(l.Query), Referer: unlessDash(l.Referer), UserAgent: unlessDash(l.Agent),
		Status: l.Status, Bytes: l.Bytes, Socket: e.socketNamed(l.Frontend), Reason: ended(l.End),
	}
	if client, err := netip.ParseAddr(l.Client); err == nil {
		a.Client = client.Unmap()
	}
	if endpoint, err := netip.ParseAddrPort(l.Server); err == nil {
		a.Endpoint = endpoint.String()
	} else if i := strings.LastIndexByte(l.Server, ':'); i > 0 { // an address of IPv6 has no brackets
		if endpoint, err := netip.ParseAddrPort("[" + l.Server[:i] + "]" + l.Server[i:]); err == nil {
			a.Endpoint = endpoint.String()
		}
	}
	e.options.Access(a)
}

// socketNamed is the name of the socket that a frontend serves.
func (e *Engine) socketNamed(frontend string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.plan != nil {
		for _, s := range e.plan.sockets {
			if s.id == frontend || s.id+"h" == frontend {
				return s.model.Name
			}
		}
	}
	return ""
}

// ended says why haproxy answered itself or ended the request (its management
// guide's "termination states").
func ended(state string) string {
	if len(state) < 2 || state == "--" {
		return ""
	}
	who := map[byte]string{
		'C': "the client went away", 'S': "the endpoint went away", 'P': "refused", 'L': "answered by the gateway", 'R': "out of something that haproxy needs",
		'I': "an error in haproxy", 'D': "the endpoint was taken away", 'U': "the endpoint was taken away", 'K': "ended by the gateway",
		'c': "the client took too long", 's': "the endpoint took too long",
	}[state[0]]
	if state == "SC" {
		return "no connection to an endpoint"
	}
	return who
}
