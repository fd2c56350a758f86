package agent

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	membership "github.com/fairway-net/fairway/announce/link"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/endpoint/check"
)

// How a machine is asked whether it is there of which nothing is heard on the link: its kernel,
// by an echo request to some of its endpoints' addresses, which is the way that connections take.
const (
	askedAddresses = 4
	echoRequests   = 3
	echoEvery      = 35 * time.Millisecond
)

// peers says how the other machines of the link are asked, and has what they agree on go into the
// table.
func (a *Agent) peers() membership.Inquiry {
	return membership.Inquiry{
		Ask:     a.askPeer,
		Met:     a.machines.meet,
		Changed: a.peersChanged,
		IsAlone: func() bool { return a.api.Away() > 0 },
	}
}

func (a *Agent) askPeer(ctx context.Context, node string) membership.Answer {
	var addresses []netip.Addr
	machine := a.machines.of(node)
	a.state.withCompiler(func(c *compile.Compiler) { addresses = c.AddressesOn(machine, askedAddresses) })
	if len(addresses) == 0 {
		return membership.Unknown // nor does anything depend on it
	}
	answers, err := check.Echoes(ctx, addresses, echoRequests, echoEvery)
	switch {
	case answers:
		return membership.Answers
	case err != nil || ctx.Err() != nil:
		return membership.Unknown
	}
	return membership.Silent
}

func (a *Agent) peersChanged(gone []string) {
	machines := a.machines.gone(gone)
	if !a.state.setGone(gone, machines) {
		return
	}
	if a.config.Gone != nil {
		a.config.Gone.Set(machines)
	}
	a.metrics.MachinesGone.Set(float64(len(gone)))
	if len(gone) == 0 {
		a.config.Log.Info("all machines of the link are there again")
		return
	}
	a.config.Log.Warn("machines are gone, as their peers on the link agree: their endpoints get no new connections from here while others are ready",
		"machines", strings.Join(gone, ","))
}

// How often the addresses of other machines are read: of each when it is first heard, again when
// that failed, and now and then. Not all at once: a link may have a thousand.
const (
	machineAgain  = 10 * time.Second
	machineRenew  = time.Hour
	machineSpaced = 50 * time.Millisecond
)

// machines are the other machines of the link with the addresses of their Nodes, known ahead: the
// API server may be on the one that is gone. Endpoints without a nodeName are placed by them.
type machines struct {
	mu        sync.Mutex
	addresses map[string][]netip.Addr
	due       map[string]time.Time // to be read
	wake      chan struct{}
}

func newMachines() *machines {
	return &machines{addresses: map[string][]netip.Addr{}, due: map[string]time.Time{}, wake: make(chan struct{}, 1)}
}

// meet has the addresses of a machine read.
func (m *machines) meet(node string) {
	m.mu.Lock()
	m.due[node] = time.Now()
	m.mu.Unlock()
	signal(m.wake)
}

// of is a machine, with the addresses that are known.
func (m *machines) of(node string) compile.Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return compile.Machine{Name: node, Addresses: m.addresses[node]}
}

// gone are the machines that are gone. An address that another machine has, too, isn't: a Node of
// that machine's former name may be left, and what a Node lists is its machine's own word.
func (m *machines) gone(nodes []string) (list []compile.Machine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := map[netip.Addr]bool{}
	for node, addresses := range m.addresses {
		for _, addr := range addresses {
			there[addr] = there[addr] || !slices.Contains(nodes, node)
		}
	}
	for _, node := range nodes {
		addresses := slices.DeleteFunc(slices.Clone(m.addresses[node]), func(a netip.Addr) bool { return there[a] })
		list = append(list, compile.Machine{Name: node, Addresses: addresses})
	}
	return list
}

// next is a machine that is to be read now, "" if there is none; and when to look again.
func (m *machines) next(now time.Time) (node string, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wait = machineRenew
	for name, due := range m.due {
		if until := due.Sub(now); until <= 0 {
			return name, 0
		} else if until < wait {
			wait = until
		}
	}
	return "", wait
}

// known takes in what came of reading a machine's addresses.
func (m *machines) known(now time.Time, node string, addresses []netip.Addr, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case apierrors.IsNotFound(err):
		delete(m.due, node)
		delete(m.addresses, node)
	case err != nil:
		m.due[node] = now.Add(machineAgain)
	default:
		m.due[node], m.addresses[node] = now.Add(machineRenew), addresses
	}
}

// follow reads the addresses of machines until ctx is done.
func (m *machines) follow(ctx context.Context, read func(ctx context.Context, node string) ([]netip.Addr, error)) {
	for {
		node, wait := m.next(time.Now())
		woken := m.wake
		if node != "" {
			addresses, err := read(ctx, node)
			m.known(time.Now(), node, addresses, err)
			wait, woken = machineSpaced, nil
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-woken:
		}
	}
}

// followMachines keeps the addresses of the other machines of the link.
func (a *Agent) followMachines(ctx context.Context) {
	for _, node := range a.balance.Peers() {
		a.machines.meet(node)
	}
	a.machines.follow(ctx, func(ctx context.Context, node string) ([]netip.Addr, error) {
		n, err := a.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{ResourceVersion: "0"})
		if err != nil {
			return nil, err
		}
		return check.NodeOf(n).Addresses, nil
	})
}
