package examine

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/bundle"
	"github.com/fairway-net/fairway/diagnose/dump"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/model"
)

// scope is the namespace that a bundle is of; "" is all. Nothing of others leaves the cluster
// with it.
type scope string

// holds reports whether an object's name, "namespace/name", is in it.
func (s scope) holds(name string) bool { return s == "" || strings.HasPrefix(name, string(s)+"/") }

// objects takes out what is of other namespaces.
func (s scope) objects(o *explain.Objects) {
	if s == "" {
		return
	}
	o.Services = slices.DeleteFunc(o.Services, func(v *corev1.Service) bool { return v.Namespace != string(s) })
	o.Pods = slices.DeleteFunc(o.Pods, func(p *corev1.Pod) bool { return p.Namespace != string(s) })
	o.Policies = slices.DeleteFunc(o.Policies, func(p *networkingv1.NetworkPolicy) bool { return p.Namespace != string(s) })
	o.Slices = slices.DeleteFunc(o.Slices, func(v *discoveryv1.EndpointSlice) bool { return v.Namespace != string(s) })
}

// table is the part of a table that is of the namespace's Services.
func (s scope) table(t *model.Table) *model.Table {
	if t == nil || s == "" {
		return t
	}
	e := t.Edit()
	for f := range t.Frontends() {
		if !s.holds(compile.ServiceOf(f.Name).String()) {
			e.DeleteFrontend(f.Key)
		}
	}
	for p := range t.Pools() {
		if !s.holds(compile.ServiceOf(p.ID.Name).String()) {
			e.DeletePool(p.ID)
		}
	}
	return e.Table()
}

// kernel asks what the kernel of a node holds of the Services of a table: each by itself, since
// its objects don't say whose they are.
func (s scope) kernel(ctx context.Context, a agentlink.Found, of *model.Table) (*dump.Report, error) {
	if s == "" {
		return a.Objects(ctx, "")
	}
	all := &dump.Report{Node: a.Name(), Mode: a.Status.Mode}
	if of == nil {
		return all, nil
	}
	seen := map[dump.Line]bool{}
	asked := map[string]bool{}
	for f := range of.Frontends() {
		service := compile.ServiceOf(f.Name).String()
		if asked[service] {
			continue
		}
		asked[service] = true
		one, err := a.Objects(ctx, service)
		if err != nil {
			return nil, err
		}
		for _, line := range one.Lines {
			if !seen[line] {
				seen[line] = true
				all.Lines = append(all.Lines, line)
			}
		}
		all.APIVersion, all.Kind, all.Unknown, all.Lacks = one.APIVersion, one.Kind, one.Unknown, one.Lacks
	}
	all.Table = of.String()
	return all, nil
}

// node takes out of what an agent says what is of other namespaces.
func (s scope) node(n *bundle.Node) {
	if s == "" {
		return
	}
	n.Changes = slices.DeleteFunc(n.Changes, func(c agentlink.Change) bool { return !s.holds(c.Service) })
	if n.Status != nil {
		n.Status.LeftOut = slices.DeleteFunc(slices.Clone(n.Status.LeftOut), func(l agentlink.LeftOut) bool {
			return l.Name != "" && !s.holds(compile.ServiceOf(l.Name).String())
		})
	}
}

// named finds what may be the name of an object with its namespace: "shop/web" in
// service=shop/web:http. A path and a prefix of addresses have no such form.
var named = regexp.MustCompile(`(?:^|[\s="'(,;\[])([a-z0-9](?:[-a-z0-9]*[a-z0-9])?/[a-z][-a-z0-9.]*)`)

// ports are what follows a port's number, as in 80/tcp.
var ports = map[string]bool{"tcp": true, "udp": true, "sctp": true}

// log leaves out the lines that name an object of another namespace.
func (s scope) log(text string) string {
	if s == "" {
		return text
	}
	var kept strings.Builder
	for line := range strings.Lines(text) {
		others := false
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			others = others || !s.holds(m[1]) && !ports[path.Base(m[1])]
		}
		if !others {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
