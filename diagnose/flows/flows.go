// Package flows gives connections to Services their names: who asks, which Service,
// which endpoint. It is pure: what data planes tell of connections, a table and the
// API's objects go in, records come out.
package flows

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/model"
)

// Verdict is what has become of a connection so far.
type Verdict string

// The verdicts.
const (
	Forwarded    Verdict = "forwarded"    // it is translated to an endpoint
	Answered     Verdict = "answered"     // ... which has answered
	Unanswered   Verdict = "unanswered"   // it ended without an answer
	Untranslated Verdict = "untranslated" // though a Service has the address
	Ended        Verdict = "ended"        // it was answered, and is over or forgotten now
	Refused      Verdict = "refused"      // the client was told so
	Dropped      Verdict = "dropped"      // without a word
)

// Verdicts lists them.
func Verdicts() []string {
	return []string{string(Forwarded), string(Answered), string(Unanswered), string(Untranslated), string(Ended), string(Refused), string(Dropped)}
}

// Record is a connection with the names of its ends.
type Record struct {
	APIVersion string         `json:"apiVersion"` // explain.SchemaVersion
	Kind       string         `json:"kind"`       // "Flow"
	Time       time.Time      `json:"time"`
	Node       string         `json:"node"`
	Protocol   string         `json:"protocol"`
	Client     netip.AddrPort `json:"client"`
	ClientName string         `json:"clientName,omitempty"` // "namespace/pod" or the node's
	Frontend   netip.AddrPort `json:"frontend"`
	Service    string         `json:"service"` // "namespace/name:port"
	Endpoint   netip.AddrPort `json:"endpoint,omitzero"`
	Pod        string         `json:"pod,omitempty"` // of the endpoint: "namespace/pod"
	Verdict    Verdict        `json:"verdict"`
	Reason     string         `json:"reason,omitempty"` // why it was refused or dropped
	Bytes      *Bytes         `json:"bytes,omitempty"`  // nil where nobody counts them
	Took       float64        `json:"tookSeconds,omitempty"`
}

// Bytes are what both ends have said.
type Bytes struct {
	In  uint64 `json:"in"` // the client
	Out uint64 `json:"out"`
}

// Names are of addresses, as the API has them.
type Names map[netip.Addr]string

// NamesOf are the names of pods and nodes. Pods on their node's network have no
// address of their own.
func NamesOf(o *explain.Objects) Names {
	names := Names{}
	for _, n := range o.Nodes {
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				names[ip.Unmap()] = n.Name
			}
		}
	}
	for _, p := range o.Pods {
		if p.Spec.HostNetwork {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				names[a.Unmap()] = p.Namespace + "/" + p.Name
			}
		}
	}
	return names
}

// Of names what a data plane tells; false if it is about no Service that the table has.
func Of(node string, table *model.Table, names Names, e flow.Event) (Record, bool) {
	packet := model.Packet{Src: e.Client.Addr(), Dst: e.Frontend.Addr(), SrcPort: e.Client.Port(), DstPort: e.Frontend.Port(), Proto: e.Proto}
	if !names.isNode(node, e.Client.Addr()) {
		packet.In = "?" // it came in somewhere
	}
	v := table.Decide(packet)
	rejected := e.Kind == flow.Refused || e.Kind == flow.Dropped
	if v.Frontend == nil && !(rejected && v.Reason == model.UnknownPort) {
		return Record{}, false
	}
	r := Record{
		APIVersion: explain.SchemaVersion, Kind: "Flow", Time: e.Time, Node: node, Protocol: e.Proto.String(),
		Client: e.Client, ClientName: names[e.Client.Addr()], Frontend: e.Frontend, Verdict: verdict(e),
		Reason: e.Reason, Took: e.Took.Seconds(),
	}
	if v.Frontend != nil {
		r.Service = v.Frontend.Name
	}
	if e.Counted {
		r.Bytes = &Bytes{e.In, e.Out}
	}
	if e.Backend.IsValid() && e.Backend != e.Frontend {
		r.Endpoint, r.Pod = e.Backend, names[e.Backend.Addr()]
	}
	if rejected && !r.Endpoint.IsValid() {
		r.reject(v)
	}
	return r, true
}

// reject says of a packet that the kernel dropped, and which led to no endpoint, what the
// table makes of it: a refusal drops the packet that it answers.
func (r *Record) reject(v model.Verdict) {
	switch v.Action {
	case model.Refuse:
		r.Verdict, r.Reason = Refused, v.Reason.String()
	case model.Discard:
		r.Reason = v.Reason.String()
	}
}

// isNode reports whether an address is the node's own.
func (n Names) isNode(node string, a netip.Addr) bool { return n[a] == node || a.IsLoopback() }

func verdict(e flow.Event) Verdict {
	switch {
	case e.Kind == flow.Refused:
		return Refused
	case e.Kind == flow.Dropped:
		return Dropped
	case e.Kind == flow.Ended && e.Replied:
		return Ended
	case e.Kind == flow.Ended:
		return Unanswered
	case e.Backend == e.Frontend:
		return Untranslated
	case e.Replied:
		return Answered
	}
	return Forwarded
}

// Filter chooses records.
type Filter struct {
	Service string // "namespace/name"; "" for all
	Verdict string // "" for all
}

// Wants reports whether a record is chosen.
func (f Filter) Wants(r Record) bool {
	return (f.Service == "" || f.Service == compile.ServiceOf(r.Service).String()) && (f.Verdict == "" || f.Verdict == string(r.Verdict))
}

// Header is the line above records as String has them.
var Header = line("TIME", "NODE", "CLIENT", "SERVICE", "ENDPOINT", "VERDICT", "BYTES in/out", "TOOK")

// String is a line for people.
func (r Record) String() string {
	endpoint := "-"
	if r.Endpoint.IsValid() {
		endpoint = named(r.Pod, r.Endpoint)
	}
	verdict, bytes, took := string(r.Verdict), "", ""
	if r.Reason != "" {
		verdict += ": " + r.Reason
	}
	if r.Bytes != nil {
		bytes = fmt.Sprintf("%d/%d", r.Bytes.In, r.Bytes.Out)
	}
	if r.Took > 0 {
		took = time.Duration(r.Took * float64(time.Second)).Round(time.Millisecond).String()
	}
	service := r.Service
	if service == "" {
		service = "no Service"
	}
	return line(r.Time.Format("15:04:05.000"), r.Node, named(r.ClientName, r.Client), service+" "+r.Frontend.String()+"/"+r.Protocol, endpoint, verdict, bytes, took)
}

func line(time, node, client, service, endpoint, verdict, bytes, took string) string {
	return strings.TrimRight(fmt.Sprintf("%-12s  %-10s  %-44s  %-48s  %-44s  %-12s  %-12s  %s", time, node, client, service, endpoint, verdict, bytes, took), " ")
}

// named is an address with its name, if it has one.
func named(name string, at netip.AddrPort) string {
	if name == "" {
		return at.String()
	}
	return name + " " + at.String()
}
