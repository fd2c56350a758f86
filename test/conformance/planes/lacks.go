package planes

import (
	"slices"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// changes asks two planes whether connections are lost when the second takes the
// first one's place.
func (r *Run) changes(from, to string) error {
	r.handover = nil
	for _, kind := range []string{from, to} {
		if _, known := r.declared[kind]; !known {
			p, err := r.topo.Start(kind, r.stateDir)
			if err != nil {
				return err
			}
			r.declared[kind] = p.Unsupported
			if err := p.Kill(); err != nil {
				return err
			}
		}
		for _, lack := range r.declared[kind] {
			if lack.Feature == kernel.Handover && (lack.Value == "" || kind == from && lack.Value == planeOf(to)) {
				r.handover = append(r.handover, kernel.Unsupported{Feature: lack.Feature, Value: "(" + kind + ")", Why: lack.Why})
			}
		}
	}
	return nil
}

// withoutHandover are the lacks that don't depend on which plane comes next.
func withoutHandover(lacks []kernel.Unsupported) []kernel.Unsupported {
	return slices.DeleteFunc(slices.Clone(lacks), func(l kernel.Unsupported) bool { return l.Feature == kernel.Handover })
}

// lackOf finds a feature among what a plane lacks; with a value only if the
// plane lacks this very one.
func lackOf(lacks []kernel.Unsupported, f kernel.Feature, value string) *kernel.Unsupported {
	for i, l := range lacks {
		if l.Feature == f && (l.Value == "" || value == "" || l.Value == value) {
			return &lacks[i]
		}
	}
	return nil
}

// weaker is an exception that was made.
type weaker struct {
	lack *kernel.Unsupported
	how  string
}

// weaken makes exceptions for what a plane lacks, and says which.
func (w *wanted) weaken(v model.Verdict, lacks []kernel.Unsupported) []weaker {
	var made []weaker
	if lack := lackOf(lacks, kernel.DirectReturn, ""); lack != nil && v.Direct {
		made = append(made, weaker{lack, "masqueraded instead"})
		for name := range w.backends {
			w.backends[name] = true
		}
	}
	if lack := lackOf(lacks, kernel.ClientAddress, ""); lack != nil && v.Action == model.Forward && w.keepsSource(v.Src) {
		made = append(made, weaker{lack, "the source may be masqueraded"})
		w.lenient, w.near = true, w.nearOf(v, lack)
	}
	if lack := lackOf(lacks, kernel.SilentDrop, protocolOf(v)); lack != nil && v.Action == model.Discard {
		made = append(made, weaker{lack, "expected to be refused instead"})
		w.outcome, w.reset = Refused, true
	}
	if lack := lackOf(lacks, kernel.SilentDrop, protocolOf(v)); lack != nil && v.Action == model.Refuse && v.Frontend != nil {
		made = append(made, weaker{lack, "may be reset when it has been accepted, if the port is open for others"})
		w.reset = true
	}
	if lack := lackOf(lacks, kernel.UnservedPorts, ""); lack != nil && v.Action == model.Pass && w.outcome == Silent {
		made = append(made, weaker{lack, "may be refused instead"})
		w.refusable = true
	}
	if lack := lackOf(lacks, kernel.Hairpin, ""); lack != nil && slices.ContainsFunc(v.Backends(), func(b model.Backend) bool { return b.Addr == v.Src }) {
		made = append(made, weaker{lack, "the source of a pod that reaches itself may be kept"})
		w.selfKept = true
	}
	return made
}

// excuse allows what kube-proxy does by design, everywhere: it refuses TCP by
// an ICMP error, and what isn't served in the Services' ranges it drops or lets
// go where the routes lead.
func (w *wanted) excuse(v model.Verdict) {
	w.crowded = true // which means that ICMP errors aren't counted
	if v.Action == model.Refuse && v.Frontend == nil {
		w.outcome, w.refusable = Silent, true
	}
}

// nearOf are the backends to which a lack of client addresses doesn't apply: the
// pods of this node, if the plane lacks them for others only; but not for clients at the
// same interface, a bridge.
func (w *wanted) nearOf(v model.Verdict, lack *kernel.Unsupported) map[string]bool {
	near := map[string]bool{}
	if slices.Contains(w.bridged, w.from) {
		return near
	}
	for _, b := range v.Backends() {
		if b.Local && b.Addr != hosts[NodeName].addr(b.Addr) && lack.Value == kernel.RemoteOnly {
			near[backendName(b)] = true
		}
	}
	return near
}

// protocolOf is the protocol that a verdict's frontend has; "" without one.
func protocolOf(v model.Verdict) string {
	if v.Frontend == nil {
		return ""
	}
	return v.Frontend.Proto.String()
}
