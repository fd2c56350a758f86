package explain

import (
	"net/netip"
	"testing"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestSees: whose address endpoints see follows from the route, and from what the plane lacks.
// The conformance cases hold it against packets; some of these they don't meet.
func TestSees(t *testing.T) {
	addr := netip.MustParseAddr
	client, near, far, node := addr("10.244.1.2"), addr("10.244.1.3"), addr("10.244.2.2"), addr("172.30.0.11")
	relay := Plane{Lacks: []kernel.Unsupported{{Feature: kernel.ClientAddress, Value: kernel.RemoteOnly}, {Feature: kernel.DirectReturn}}}
	bridged := Plane{Lacks: relay.Lacks, AnswersPass: func(_, _ netip.Addr) bool { return false }}
	blind := Plane{Lacks: []kernel.Unsupported{{Feature: kernel.ClientAddress}}}
	settings := &model.Settings{NodeAddrs: []netip.Addr{node}}
	for name, c := range map[string]struct {
		plane   Plane
		verdict model.Verdict
		backend model.Backend
		want    string
	}{
		"as the table says":              {Plane{}, model.Verdict{Src: client}, model.Backend{Addr: far}, SeesClient},
		"masqueraded":                    {Plane{}, model.Verdict{Src: client, Masquerade: true}, model.Backend{Addr: far}, SeesNode},
		"hairpin":                        {Plane{}, model.Verdict{Src: client}, model.Backend{Addr: client, Local: true}, SeesNode},
		"hairpin of sockets":             {Plane{Lacks: []kernel.Unsupported{{Feature: kernel.Hairpin}}}, model.Verdict{Src: client}, model.Backend{Addr: client, Local: true}, SeesEither},
		"masqueraded to the node itself": {Plane{}, model.Verdict{Src: client, Masquerade: true}, model.Backend{Addr: node, Local: true}, SeesEither},
		"direct":                         {Plane{}, model.Verdict{Src: client, Direct: true}, model.Backend{Addr: far}, SeesClient},
		"direct, lacked":                 {Plane{Lacks: []kernel.Unsupported{{Feature: kernel.DirectReturn}}}, model.Verdict{Src: client, Direct: true}, model.Backend{Addr: near, Local: true}, SeesNode},
		"relay, this node":               {relay, model.Verdict{Src: client}, model.Backend{Addr: near, Local: true}, SeesClient},
		"relay, one bridge":              {bridged, model.Verdict{Src: client}, model.Backend{Addr: near, Local: true}, SeesNode},
		"relay, another node":            {relay, model.Verdict{Src: client}, model.Backend{Addr: far}, SeesNode},
		"relay, from the node":           {relay, model.Verdict{Src: node, Origin: model.FromNode}, model.Backend{Addr: near, Local: true}, SeesNode},
		"relay, to the node itself":      {relay, model.Verdict{Src: client}, model.Backend{Addr: node, Local: true}, SeesNode},
		"relay without nf_tables":        {blind, model.Verdict{Src: client}, model.Backend{Addr: near, Local: true}, SeesNode},
	} {
		if got := c.plane.sees(settings, c.verdict, c.backend); got != c.want {
			t.Errorf("%s: it sees %q, want %q", name, got, c.want)
		}
	}
}
