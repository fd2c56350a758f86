package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
)

// announceLab is a lab whose first two nodes announce, and whose third one has the
// endpoints: whatever happens to a node that announces, endpoints stay.
type announceLab struct {
	options AnnounceOptions
	way     string
	api     kubernetes.Interface
	metallb *kube.MetalLB
	hosts   map[string]*netns.NS // nodes, client, router
	pings   *pings
}

// announcers are the nodes that announce.
var announcers = []string{"node1", "node2"}

const endpointsNode = "node3"

// settleTimeout is how long the lab may take to be as before an event.
const settleTimeout = 2 * time.Minute

func newAnnounceLab(ctx context.Context, o AnnounceOptions, mode string) (_ *announceLab, err error) {
	if err := lab.Down(announceLabName); err != nil && !errors.Is(err, fs.ErrNotExist) { // what a crash left
		return nil, err
	}
	if err := o.fairway(ctx, "lab", "up", "--name", announceLabName, "--mode", mode, "--router", o.Router); err != nil {
		return nil, err
	}
	l := &announceLab{options: o, hosts: map[string]*netns.NS{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	for _, name := range append([]string{"client", "router", endpointsNode}, announcers...) {
		if l.hosts[name], err = netns.Open(topology.HostNamespace(announceLabName, name)); err != nil {
			return nil, err
		}
	}
	if l.api, err = lab.Client(announceLabName); err != nil {
		return nil, err
	}
	config, err := kube.Config(lab.Kubeconfig(announceLabName))
	if err != nil {
		return nil, err
	}
	if l.metallb, err = kube.NewMetalLB(config); err != nil {
		return nil, err
	}
	return l, errors.Join(l.quicken(), l.fill(ctx))
}

func (l *announceLab) close() error {
	var errs []error
	if l.pings != nil {
		l.pings.close()
	}
	for _, ns := range l.hosts {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	return errors.Join(append(errs, lab.Down(announceLabName))...)
}

// fairway runs the measured program.
func (o *AnnounceOptions) fairway(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, o.Fairway, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("fairway %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// dialIn connects from a host of the lab.
func dialIn(ns *netns.NS, timeout time.Duration, network, address string) (conn net.Conn, err error) {
	err = ns.Do(func() (err error) {
		conn, err = net.DialTimeout(network, address, timeout)
		return err
	})
	return conn, err
}

// report is what a node's agent says.
func (l *announceLab) report(ctx context.Context, node string) (report announce.Report, err error) {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return dialIn(l.hosts[node], time.Second, network, address)
		}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10249/announce", nil)
	if err != nil {
		return report, err
	}
	response, err := client.Do(request)
	if err != nil {
		return report, err
	}
	defer response.Body.Close()
	return report, json.NewDecoder(response.Body).Decode(&report)
}

// settle waits until both nodes are ready to announce the address.
func (l *announceLab) settle(ctx context.Context) error {
	address := l.address(0)
	return poll(ctx, settleTimeout, 50*time.Millisecond, func() error {
		for _, node := range announcers {
			report, err := l.report(ctx, node)
			if err != nil {
				return err
			}
			if err := l.settled(report, address); err != nil {
				return fmt.Errorf("%s: %w", node, err)
			}
		}
		return l.routed(ctx, address)
	})
}

// settled says what a node still lacks.
func (l *announceLab) settled(report announce.Report, address netip.Addr) error {
	for _, a := range report.Addresses {
		if a.Address != address {
			continue
		}
		if l.way == wayLayer2 && a.Protocol == announce.Layer2 && a.Owner != "" {
			return nil
		}
		if l.way != wayLayer2 && a.Protocol == announce.BGP && len(a.Peers) > 0 {
			for _, s := range report.Sessions {
				if l.way == wayWatched && s.BFD != "up" {
					return fmt.Errorf("BFD is %s", s.BFD)
				}
			}
			return nil
		}
	}
	return fmt.Errorf("it does not announce %s yet: %+v", address, report)
}

// routed says whether the router's kernel spreads the address over both nodes.
func (l *announceLab) routed(ctx context.Context, address netip.Addr) error {
	if l.way == wayLayer2 {
		return nil
	}
	family := "-4"
	if address.Is6() {
		family = "-6"
	}
	out, err := l.inside(ctx, "router", "ip", family, "-o", "route", "show", netip.PrefixFrom(address, address.BitLen()).String())
	if err == nil && strings.Count(out, "nexthop") != len(announcers) {
		err = fmt.Errorf("the router has %q, want two next hops", strings.TrimSpace(out))
	}
	return err
}

// inside runs a program in a host of the lab.
func (l *announceLab) inside(ctx context.Context, host, program string, args ...string) (string, error) {
	var out []byte
	err := l.hosts[host].Do(func() (err error) {
		out, err = exec.CommandContext(ctx, program, args...).CombinedOutput()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
