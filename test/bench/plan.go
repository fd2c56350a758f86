package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/kernel"
)

// size is what the API holds.
type size struct{ services, endpoints int }

func (s size) String() string { return fmt.Sprintf("%d x %d", s.services, s.endpoints) }

// part is one thing to measure.
type part struct {
	name        string
	short       string
	sizes       []size // where it is measured if nobody says
	onlyIfNamed bool   // takes long: measured only if the command line names it
	fairwayOnly bool   // not measured of kube-proxy
	measure     func(context.Context, *subject) error
}

// parts are all, in the order in which they are measured at each size.
func parts() []part {
	small, middle, wide, large := size{1000, 10}, size{10000, 5}, size{10000, 10}, size{30000, 3}
	return []part{
		{name: "creates", short: "Services created per second at the API", sizes: []size{middle, large}},
		{name: "start", short: "agent start to everything programmed", sizes: []size{middle, large}},
		{name: "cpu", short: "CPU of the agent and its children for each endpoint change", sizes: []size{small, wide, large}, measure: measureCPU},
		{name: "latency", short: "slice written to first connection reaching the new pod", sizes: []size{middle}, measure: measureLatency},
		{name: "floor", short: "what iptables-restore by itself takes for next to nothing", sizes: []size{middle}, measure: measureFloor, fairwayOnly: true},
		{name: "service", short: "new Service to first connection", sizes: []size{middle}, measure: measureService},
		{name: "rate", short: "100 changes per second: lag and CPU", sizes: []size{middle}, measure: measureRate},
		{name: "connections", short: "connections per second over all Services against direct ones", sizes: []size{middle}, measure: measureConnections},
		{name: "datapath", short: "long connections' throughput, UDP packets, connections at 1, 100 and 1,000 backends", sizes: []size{middle}, measure: measureDatapath},
		{name: "memory", short: "resident memory of the agent and its children", sizes: []size{wide, large}, measure: measureMemory},
		{name: "soak", short: "a million endpoint changes; only if named", sizes: []size{wide}, measure: measureSoak, onlyIfNamed: true, fairwayOnly: true},
	}
}

// mode is a data plane, in one of its variants: this project's, or kube-proxy's.
type mode struct {
	name  string
	args  []string   // of the agent
	proxy *proxyMode // nil if it is ours
}

// modes are all that this kernel has, and what the others lack.
func modes() (list []mode, missing map[string]error) {
	missing = map[string]error{}
	for _, kind := range dataplane.Kinds() {
		_, err := kind.New(kernel.Options{})
		switch {
		case err != nil:
			missing[kind.Name] = err
		case kind.Name == "iptables":
			for _, variant := range []string{"nft", "legacy"} {
				list = append(list, mode{name: "iptables-" + variant, args: []string{"--mode", kind.Name, "--iptables-variant", variant}})
			}
		default:
			list = append(list, mode{name: kind.Name, args: []string{"--mode", kind.Name}})
		}
	}
	return list, missing
}

// stage is a size with what is measured at it.
type stage struct {
	size  size
	parts []string
	modes []mode
}

func (s *stage) has(part string) bool { return slices.Contains(s.parts, part) }

// newPlan makes the stages, the smaller first, since the API is only added to.
func newPlan(o *Options) ([]stage, error) {
	for _, name := range o.Only {
		if !slices.ContainsFunc(parts(), func(p part) bool { return p.name == name }) {
			return nil, fmt.Errorf("--only: %q must be one of %s", name, partNames())
		}
	}
	if (o.Services == 0) != (o.Endpoints == 0) || o.Services < 0 || o.Endpoints < 0 {
		return nil, fmt.Errorf("--services %d --endpoints %d: give both, greater than 0, or none", o.Services, o.Endpoints)
	}
	chosen, err := chooseModes(o)
	if err != nil {
		return nil, err
	}
	var plan []stage
	for _, p := range parts() {
		if len(o.Only) > 0 && !slices.Contains(o.Only, p.name) || len(o.Only) == 0 && p.onlyIfNamed {
			continue
		}
		if p.name == "creates" && o.Kubeconfig != "" {
			o.Log.Info("not measured", "part", p.name, "reason", "the API server is not ours")
			continue
		}
		sizes := p.sizes
		if o.Services > 0 {
			sizes = []size{{o.Services, o.Endpoints}}
		}
		for _, s := range sizes {
			i := slices.IndexFunc(plan, func(st stage) bool { return st.size == s })
			if i < 0 {
				i, plan = len(plan), append(plan, stage{size: s, modes: chosen})
			}
			plan[i].parts = append(plan[i].parts, p.name)
		}
	}
	slices.SortFunc(plan, func(a, b stage) int {
		if d := a.size.services - b.size.services; d != 0 {
			return d
		}
		return a.size.endpoints - b.size.endpoints
	})
	for i := range plan {
		if !slices.ContainsFunc(plan[i].parts, func(p string) bool { return p != "creates" }) {
			plan[i].modes = nil // the API alone
		}
	}
	return plan, nil
}

func chooseModes(o *Options) ([]mode, error) {
	all, missing := modes()
	for name, err := range missing {
		o.Log.Info("not measured", "mode", name, "reason", err)
	}
	var chosen []mode
	var names []string
	for _, m := range all {
		names = append(names, m.name)
		if len(o.Modes) > 0 && !slices.Contains(o.Modes, m.name) {
			continue
		}
		chosen = append(chosen, m)
		if proxy, has := proxyModes[m.name]; has && o.KubeProxy != "" {
			chosen = append(chosen, mode{name: proxyName + m.name, proxy: &proxy})
		}
	}
	for _, name := range o.Modes {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("--mode: %q must be one of %s", name, strings.Join(names, ", "))
		}
	}
	return chosen, nil
}

// PartNames lists the parts with what they measure, for help texts.
func PartNames() string {
	var b strings.Builder
	for _, p := range parts() {
		fmt.Fprintf(&b, "  %-12s %s\n", p.name, p.short)
	}
	return b.String()
}

func partNames() string {
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}
