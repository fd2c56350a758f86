// Package flows gives connections to Services their names: who asks, which Service,
// which endpoint. It is pure: flows that conntrack holds or tells of, a table and the
// API's objects go in, records come out.
package flows

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/conntrack"
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
	Ended        Verdict = "ended"        // it was answered, and is forgotten now
)

// Verdicts lists them.
func Verdicts() []string {
	return []string{string(Forwarded), string(Answered), string(Unanswered), string(Untranslated), string(Ended)}
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

// Of names a flow; false if it isn't one to a Service that the table has. Ended says
// that the kernel has just forgotten it.
func Of(node string, table *model.Table, names Names, f *conntrack.Flow, ended bool) (Record, bool) {
	packet := model.Packet{Src: f.Client.Addr(), Dst: f.Frontend.Addr(), SrcPort: f.Client.Port(), DstPort: f.Frontend.Port(), Proto: f.Proto}
	front := table.Decide(packet).Frontend
	if front == nil {
		return Record{}, false
	}
	r := Record{
		APIVersion: explain.SchemaVersion, Kind: "Flow", Time: time.Now(), Node: node, Protocol: f.Proto.String(),
		Client: f.Client, ClientName: names[f.Client.Addr()], Frontend: f.Frontend, Service: front.Name,
		Verdict: verdict(f, ended),
	}
	if f.Translated() {
		r.Endpoint, r.Pod = f.Backend, names[f.Backend.Addr()]
	}
	return r, true
}

func verdict(f *conntrack.Flow, ended bool) Verdict {
	switch {
	case ended && f.Replied:
		return Ended
	case ended:
		return Unanswered
	case !f.Translated():
		return Untranslated
	case f.Replied:
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
	service, _, _ := strings.Cut(r.Service, ":")
	return (f.Service == "" || f.Service == service) && (f.Verdict == "" || f.Verdict == string(r.Verdict))
}

// Header is the line above records as String has them.
var Header = line("TIME", "NODE", "CLIENT", "SERVICE", "ENDPOINT", "VERDICT")

// String is a line for people.
func (r Record) String() string {
	endpoint := "-"
	if r.Endpoint.IsValid() {
		endpoint = named(r.Pod, r.Endpoint)
	}
	return line(r.Time.Format("15:04:05.000"), r.Node, named(r.ClientName, r.Client), r.Service+" "+r.Frontend.String()+"/"+r.Protocol, endpoint, string(r.Verdict))
}

func line(time, node, client, service, endpoint, verdict string) string {
	return fmt.Sprintf("%-12s  %-10s  %-44s  %-48s  %-44s  %s", time, node, client, service, endpoint, verdict)
}

// named is an address with its name, if it has one.
func named(name string, at netip.AddrPort) string {
	if name == "" {
		return at.String()
	}
	return name + " " + at.String()
}
