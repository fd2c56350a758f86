package packet

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/netnstest"
)

// TestGivenInSpiteOfOthers: netfilter gets a connection although it has seen
// something of it, or has entries of others that look alike.
func TestGivenInSpiteOfOthers(t *testing.T) {
	at := netip.MustParseAddrPort
	client, frontend, backend, node := at("10.244.1.2:38440"), at("10.96.0.80:80"), at("10.244.2.3:80"), at("172.30.0.11:9036")
	another := at("10.244.1.2:9036") // the client's other port, on its way between the hooks
	direct := func(from, to netip.AddrPort) translation {
		return translation{proto: model.TCP, client: from, between: from, source: from, frontend: to, backend: to, idle: 100}
	}
	for name, c := range map[string]struct {
		given, before translation
	}{
		"seen with the client's port": {
			translation{proto: model.TCP, client: client, between: client, frontend: frontend, backend: backend, source: client, idle: 1000},
			direct(client, backend),
		},
		"seen with another port": {
			translation{proto: model.TCP, client: client, between: another, frontend: frontend, backend: backend, source: another, idle: 1000},
			direct(another, backend),
		},
		"an earlier one from the client's port": {
			translation{proto: model.TCP, client: client, between: client, frontend: frontend, backend: backend, source: node, idle: 1000},
			direct(client, frontend),
		},
		"another one with the node's port": {
			translation{proto: model.TCP, client: client, between: client, frontend: frontend, backend: backend, source: node, idle: 1000},
			translation{proto: model.TCP, client: at("172.30.100.1:5000"), frontend: at("172.30.0.11:30080"), backend: backend, source: node, idle: 100},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := netnstest.New(t)
			found := 0
			must(t, ns.Do(func() error {
				for _, do := range []func() error{c.before.flow().Insert, c.given.forget, c.given.flow().Insert} {
					if err := do(); err != nil {
						return err
					}
				}
				return conntrack.Flows(context.Background(), func(f *conntrack.Flow) {
					if f.Client == client && f.Frontend == frontend && f.Backend == backend && f.Source == c.given.source {
						found++
					}
				})
			}))
			if found != 1 {
				t.Errorf("netfilter has it %d times", found)
			}
		})
	}
}

// TestPortsReserved: netfilter gives nobody else the port by which a backend knows a
// connection of the node's own, or a masqueraded one, until it is given that connection.
func TestPortsReserved(t *testing.T) {
	at := netip.MustParseAddrPort
	client, frontend, backend, node := at("10.244.1.2:38440"), at("10.96.0.80:80"), at("10.244.2.3:80"), at("172.30.0.11:9036")
	for name, given := range map[string]translation{
		"own":          {proto: model.TCP, own: true, client: node, between: node, frontend: frontend, backend: backend, source: node, idle: 1000},
		"masqueraded":  {proto: model.TCP, client: client, between: client, frontend: frontend, backend: backend, source: node, idle: 1000},
		"own datagram": {proto: model.UDP, own: true, client: node, between: node, frontend: frontend, backend: backend, source: node, idle: 100},
	} {
		t.Run(name, func(t *testing.T) {
			ns := netnstest.New(t)
			another := translation{proto: given.proto, client: at("172.30.100.1:5000"), frontend: at("172.30.0.11:30080"), backend: backend, source: node, idle: 100}
			must(t, ns.Do(func() error {
				if err := given.holdPort(); err != nil {
					return err
				}
				if err := another.flow().Insert(); !errors.Is(err, unix.EEXIST) {
					t.Errorf("another one with the same port: %v, want it refused", err)
				}
				if err := errors.Join(given.holdPort(), given.forget()); err != nil {
					return err
				}
				return given.flow().Insert()
			}))
		})
	}
}
