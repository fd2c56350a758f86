package requests

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/explain"
	ingress "github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// Question is a request that somebody might make.
type Question struct {
	URL     string
	Method  string
	Headers []string // such as "Version: two"
}

// IsURL reports whether explain is asked about a request, not a packet.
func IsURL(typed string) bool {
	return strings.HasPrefix(typed, "http://") || strings.HasPrefix(typed, "https://")
}

// Explain writes what Gateways and Ingresses do with a request, and reports whether one of
// them lets a backend, or a redirect, answer.
func Explain(ctx context.Context, w io.Writer, q Question, source *collect.Source) (answered bool, err error) {
	r, port, changes, err := q.request()
	if err != nil {
		return false, err
	}
	var out *ingress.Output
	if len(source.Files) > 0 {
		var given []string
		if out, _, given, err = FromFiles(source.Files); len(given) > 0 {
			fmt.Fprintf(w, "taken as given, since no manifest has them: %s\n\n", strings.Join(given, ", "))
		}
	} else {
		out, err = FromAPI(ctx, source)
	}
	if err != nil {
		return false, err
	}
	return writeAnswer(w, out, r, port, changes), nil
}

// ExplainObjects does what [Explain] does, of these objects.
func ExplainObjects(w io.Writer, q Question, objects *ingress.Objects, packets *explain.Objects) (answered bool, err error) {
	r, port, changes, err := q.request()
	if err != nil {
		return false, err
	}
	choice := compile.New(compile.Config{})
	for _, s := range packets.Services {
		choice.SetService(s)
	}
	for _, s := range packets.Slices {
		choice.SetSlice(s)
	}
	return writeAnswer(w, compileRequests(objects, takersOf(choice)), r, port, changes), nil
}

// writeAnswer writes who answers a request, and reports whether anybody does.
func writeAnswer(w io.Writer, out *ingress.Output, r *model.Request, port uint16, changes []string) bool {
	answered := writeRequest(w, out.Table, r, port, changes)
	if !answered {
		for _, p := range out.Unserved(r.Host) {
			fmt.Fprintf(w, "\n%s %s: %s\n", p.Kind, p.Object, p.Message)
		}
	}
	if owner, found := out.Owner(r.Host); found {
		fmt.Fprintf(w, "\nIngress %s owns the host: it decides the certificate, client certificates, redirects and other names\n", owner)
	}
	return answered
}

// request reads what was typed, the port that it goes to, and what engines change of it
// before rules see it.
func (q Question) request() (r *model.Request, port uint16, changes []string, err error) {
	u, err := url.Parse(q.URL)
	if err != nil || u.Hostname() == "" {
		return nil, 0, nil, fmt.Errorf("%q is not a URL with a host", q.URL)
	}
	r = &model.Request{
		TLS: u.Scheme == "https", Method: strings.ToUpper(q.Method), Host: strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")),
		RawQuery: u.RawQuery, Header: http.Header{},
	}
	came := policy.AsItCame(u)
	r.Path, r.Other = policy.Path(came)
	changes = changesOfPath(came, r)
	for _, text := range q.Headers {
		name, value, found := strings.Cut(text, ":")
		if name = strings.TrimSpace(name); !found || name == "" {
			return nil, 0, nil, fmt.Errorf(`--header: %q must be "NAME: VALUE"`, text)
		}
		r.Header.Add(name, strings.TrimSpace(value))
	}
	r.ServerName = r.Host
	if host := r.Header.Get("Host"); host != "" {
		r.Host = strings.ToLower(host)
		r.Header.Del("Host")
	}
	changes = append(changes, clean(r.Header)...)
	port = map[bool]uint16{false: 80, true: 443}[r.TLS]
	if u.Port() != "" {
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil {
			return nil, 0, nil, fmt.Errorf("%q is not a port", u.Port())
		}
		port = uint16(n)
	}
	return r, port, changes, nil
}

// changesOfPath says how a path is read, if not as it was typed.
func changesOfPath(came string, r *model.Request) (changes []string) {
	if came != r.Path {
		changes = append(changes, fmt.Sprintf("the path %s is read as %s", came, r.Path))
	}
	if r.Other != "" {
		changes = append(changes, fmt.Sprintf("an endpoint may take the path for %s: that must lead to the same rule, or the request is refused", r.Other))
	}
	return changes
}

// clean takes out the headers that don't pass from a client that is no trusted proxy, and
// names them.
func clean(h http.Header) (changes []string) {
	before := slices.Sorted(maps.Keys(h))
	policy.Clean(h, false)
	for _, name := range before {
		if _, passes := h[name]; !passes {
			changes = append(changes, fmt.Sprintf("the header %s doesn't pass: it is the gateway's to say, or of one connection", name))
		}
	}
	return changes
}

// writeRequest writes the decision of every Gateway that has the port, and
// reports whether one of them lets a backend, or a redirect, answer.
func writeRequest(w io.Writer, t *model.Table, r *model.Request, port uint16, changes []string) bool {
	fmt.Fprintf(w, "%s %s at port %d, host %s\n", r.Method, r.Path, port, r.Host)
	for _, change := range changes {
		fmt.Fprintf(w, "  %s\n", change)
	}
	served, found := false, false
	for _, s := range t.Sockets {
		if s.Port != port || s.TLS != r.TLS {
			continue
		}
		found = true
		d := s.Decide(r)
		fmt.Fprintf(w, "\nGateway %s\n", s.Name)
		if d.Listener != nil {
			fmt.Fprintf(w, "  listener  %s, hostname %q\n", d.Listener.Name, d.Listener.Hostname)
		}
		if d.Status != http.StatusMisdirectedRequest {
			for _, step := range s.Trace(r) {
				if step.Why != "" {
					fmt.Fprintf(w, "  not       %s rule %s (%s): %s\n", step.Rule.Action.Route, step.Rule.Action.Rule, &step.Rule.Match, step.Why)
				}
			}
		}
		if d.Rule != nil {
			fmt.Fprintf(w, "  rule      %s rule %s (%s)\n", d.Rule.Action.Route, d.Rule.Action.Rule, &d.Rule.Match)
		}
		switch {
		case d.Location != "":
			fmt.Fprintf(w, "  answer    %d, to %s\n", d.Status, d.Location)
		case d.Status != 0:
			fmt.Fprintf(w, "  answer    %d: %s\n", d.Status, d.Reason)
		default:
			writeBackends(w, t, d.Rule.Action)
		}
		served = served || d.Status == 0 || d.Location != ""
	}
	if !found {
		fmt.Fprintln(w, "\nno Gateway or Ingress has the port")
	}
	return served
}

// writeBackends writes who may answer, with what share.
func writeBackends(w io.Writer, t *model.Table, a *model.Action) {
	total := 0
	for i := range a.Backends {
		total += a.Backends[i].Weight
	}
	for i := range a.Backends {
		b := &a.Backends[i]
		share := 100 * float64(b.Weight) / float64(total)
		switch pool := t.Pools[b.Pool]; {
		case b.Invalid != "":
			fmt.Fprintf(w, "  backend   %.3g%%: answers 500: %s\n", share, b.Invalid)
		case pool != nil && len(pool.Endpoints) == 0:
			fmt.Fprintf(w, "  backend   %.3g%%: pool %s: answers 503: no endpoint is ready\n", share, pool)
		case pool != nil:
			fmt.Fprintf(w, "  backend   %.3g%%: pool %s\n", share, pool)
		}
	}
}
