package explain

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// Question is what somebody asks.
type Question struct {
	Typed  string // the target as it was typed
	Target Target
	From   Source
	Node   string // the node that the packet reaches; "" for that of From, or every node
}

// ParseQuestion reads a target and a source; see ParseTarget and ParseSource.
func ParseQuestion(target, from, namespace string) (Question, error) {
	t, err := ParseTarget(target, namespace)
	if err != nil {
		return Question{}, err
	}
	s, err := ParseSource(from, namespace)
	return Question{Typed: target, Target: t, From: s}, err
}

// Target is what somebody asks about: a Service, or an address.
type Target struct {
	Namespace, Name string         // of the Service; Name is "" where an address was given
	Port            string         // number or name; "" for every port
	Addr            netip.Addr     // invalid where a Service was given
	Proto           model.Protocol // 0 for every protocol
}

// otherKinds are what people write before a slash, and is no namespace.
var otherKinds = map[string]bool{
	"po": true, "pod": true, "pods": true, "deploy": true, "deployment": true, "ds": true, "daemonset": true,
	"sts": true, "statefulset": true, "job": true, "no": true, "node": true, "ep": true, "endpoints": true,
	"endpointslice": true, "ing": true, "ingress": true, "gtw": true, "gateway": true, "httproute": true,
}

// ParseTarget reads svc/NAME[:PORT], NAMESPACE/NAME[:PORT] as status prints it,
// NAME.NAMESPACE.svc[.DOMAIN][:PORT], ADDRESS[:PORT] or NAME[:PORT], each with /tcp, /udp or /sctp behind if wanted.
// Names without a namespace are in the one given.
func ParseTarget(text, namespace string) (Target, error) {
	t := Target{Namespace: namespace}
	rest := text
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		if cut, found := strings.CutSuffix(strings.ToLower(rest), "/"+p.String()); found {
			rest, t.Proto = rest[:len(cut)], p
		}
	}
	if kind, name, found := strings.Cut(rest, "/"); found {
		if looksLikeAddress(kind) {
			return Target{}, fmt.Errorf("%q: %q must be tcp, udp or sctp", text, name)
		}
		switch rest = name; {
		case kind == "svc", kind == "service", kind == "services":
		case otherKinds[kind]:
			return Target{}, fmt.Errorf("%q: want svc/NAME, NAMESPACE/NAME, NAME.NAMESPACE.svc or ADDRESS:PORT, not a %s", text, kind)
		default:
			t.Namespace = kind
		}
		if strings.Contains(rest, "/") {
			return Target{}, fmt.Errorf("%q: want svc/NAME, with the namespace by -n", text)
		}
	} else if done, err := t.readAddress(rest, text); done || err != nil {
		return t, err
	}
	name, port, _ := strings.Cut(rest, ":")
	if _, ok := portNumber(port); !ok && port != "" && strings.Trim(port, "+-0123456789") == "" { // no name either, which has a letter
		return Target{}, fmt.Errorf("%q: port %s is not a number from 1 to 65535", text, port)
	}
	t.Port = port
	if labels := strings.Split(strings.TrimSuffix(name, "."), "."); len(labels) > 1 {
		if len(labels) > 2 && labels[2] != "svc" {
			return Target{}, fmt.Errorf("%q: a Service's name is NAME.NAMESPACE.svc", text)
		}
		name, t.Namespace = labels[0], labels[1]
	}
	if name == "" {
		return Target{}, fmt.Errorf("%q: the name of the Service is missing", text)
	}
	t.Name = name
	return t, nil
}

// readAddress reads an address with or without a port, if the text begins as one.
func (t *Target) readAddress(rest, text string) (done bool, err error) {
	if ap, err := netip.ParseAddrPort(rest); err == nil {
		if ap.Port() == 0 {
			return false, fmt.Errorf("%q: port 0 is not a number from 1 to 65535", text)
		}
		t.Addr, t.Port = ap.Addr().Unmap(), strconv.Itoa(int(ap.Port()))
		return true, nil
	}
	bare := rest
	if inner, opened := strings.CutPrefix(rest, "["); opened {
		var closed bool
		if bare, closed = strings.CutSuffix(inner, "]"); !closed {
			return false, fmt.Errorf("%q: want [ADDRESS] or [ADDRESS]:PORT, with a port from 1 to 65535", text)
		}
	}
	if a, err := netip.ParseAddr(bare); err == nil {
		t.Addr = a.Unmap()
		return true, nil
	}
	host, port, found := strings.Cut(rest, ":")
	if _, err := netip.ParseAddr(host); found && err == nil {
		return false, fmt.Errorf("%q: port %q is not a number from 1 to 65535", text, port)
	}
	if strings.Trim(host, "0123456789.") == "" && host != "" {
		return false, fmt.Errorf("%q: %q is no IP address", text, host)
	}
	return false, nil
}

// looksLikeAddress reports whether a text begins as an address does.
func looksLikeAddress(text string) bool {
	t := Target{}
	done, err := t.readAddress(text, text)
	return done || err != nil
}

// Source is where the packet comes from.
type Source struct {
	Kind      string     `json:"kind"`                   // "pod", "node", "address" or "" for one of each origin
	Namespace string     `json:"namespace,omitempty"`    // of the pod
	Name      string     `json:"name,omitempty"`         // of the pod or node
	Addr      netip.Addr `json:"address,omitzero"`       // of the packet; filled in once it is known
	Second    netip.Addr `json:"secondAddress,omitzero"` // of the other IP family, where it is known
	Node      string     `json:"node,omitempty"`         // on which it begins; filled in once it is known
}

// ParseSource reads pod/NAME, node/NAME or an address; "" is one packet of each
// origin.
func ParseSource(text, namespace string) (Source, error) {
	if text == "" {
		return Source{}, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return Source{Kind: "address", Addr: a.Unmap()}, nil
	}
	kind, name, found := strings.Cut(text, "/")
	if ns, pod, more := strings.Cut(name, "/"); more && pod != "" {
		namespace, name = ns, pod
	}
	switch kind {
	case "pod", "pods", "po":
		kind = "pod"
	case "node", "nodes", "no":
		kind, namespace = "node", ""
	default:
		found = false
	}
	if !found || name == "" || strings.Contains(name, "/") {
		return Source{}, fmt.Errorf("--from: %q: want pod/NAME, node/NAME or an IP address", text)
	}
	return Source{Kind: kind, Namespace: namespace, Name: name}, nil
}

// String says the source as it is typed.
func (s Source) String() string {
	switch s.Kind {
	case "address":
		return s.Addr.String()
	case "":
		return "anywhere"
	}
	return s.Kind + "/" + s.Name
}
