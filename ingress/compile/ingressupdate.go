package compile

import (
	"crypto/tls"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mostTogether is how many Ingresses may share hosts with one that has changed, by
// way of others perhaps, for their hosts to be made anew alone.
const mostTogether = 200

// keep has the Ingresses and their listeners known for Update.
func (in *ingresses) keep(o *networkingv1.Ingress) {
	name := nameOf(o)
	in.objects[name] = o
	for _, h := range hostsOf(o) {
		if in.byHost[h] == nil {
			in.byHost[h] = map[types.NamespacedName]struct{}{}
		}
		in.byHost[h][name] = struct{}{}
	}
}

func (in *ingresses) forget(o *networkingv1.Ingress) {
	name := nameOf(o)
	delete(in.objects, name)
	for _, h := range hostsOf(o) {
		if delete(in.byHost[h], name); len(in.byHost[h]) == 0 {
			delete(in.byHost, h)
		}
	}
}

// hostsOf are all hosts of which an Ingress says something; "" is any.
func hostsOf(o *networkingv1.Ingress) []string {
	var list []string
	if o.Spec.DefaultBackend != nil {
		list = append(list, "")
	}
	for _, r := range o.Spec.Rules {
		list = append(list, strings.ToLower(r.Host))
	}
	for _, t := range o.Spec.TLS {
		for _, h := range t.Hosts {
			list = append(list, strings.ToLower(h))
		}
		if len(t.Hosts) == 0 {
			list = append(list, "")
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// canUpdate reports whether Ingresses alone can be brought up to date: what they
// have is one listener for each host, and one for all.
func (c *compiler) canUpdate(changed map[types.NamespacedName]*networkingv1.Ingress) bool {
	in := c.in
	if in == nil || in.plainListener == nil || in.special || len(in.through) > 0 || in.balanced {
		return false
	}
	for name, o := range changed {
		for _, one := range []*networkingv1.Ingress{o, in.objects[name]} {
			if one == nil {
				continue
			}
			if class := classOf(one); c.classes[class] && c.http3Classes[class] != in.http3 {
				return false
			}
		}
	}
	return true
}

func classOf(o *networkingv1.Ingress) string {
	return value(o.Spec.IngressClassName, o.Annotations["kubernetes.io/ingress.class"])
}

// together are the hosts of some Ingresses, before and now, and of all that share
// any with them.
func (c *compiler) together(changed map[types.NamespacedName]*networkingv1.Ingress) (hosts map[string]struct{}, members map[types.NamespacedName]struct{}, few bool) {
	hosts, members = map[string]struct{}{}, map[types.NamespacedName]struct{}{}
	var waiting []*networkingv1.Ingress
	for name, o := range changed {
		members[name] = struct{}{}
		for _, one := range []*networkingv1.Ingress{o, c.in.objects[name]} {
			if one != nil && c.classes[classOf(one)] {
				waiting = append(waiting, one)
			}
		}
	}
	for len(waiting) > 0 {
		o := waiting[0]
		waiting = waiting[1:]
		for _, h := range hostsOf(o) {
			if _, known := hosts[h]; known {
				continue
			}
			hosts[h] = struct{}{}
			for name := range c.in.byHost[h] {
				if _, known := members[name]; !known {
					members[name] = struct{}{}
					waiting = append(waiting, c.in.objects[name])
				}
			}
			if len(members) > mostTogether+len(changed) {
				return nil, nil, false
			}
		}
	}
	return hosts, members, true
}

// updateIngresses makes the hosts anew that changed Ingresses have. It reports false
// if more than the rules of hosts is other: all has to be compiled then.
func (u *updating) updateIngresses(changed map[types.NamespacedName]*networkingv1.Ingress) bool {
	in := u.in
	hosts, members, few := u.together(changed)
	if !few {
		return false
	}
	before := map[string]served{}
	for h := range hosts {
		if (h == "" || strings.HasPrefix(h, "*")) && in.certified { // others' listeners have its rules
			return false
		}
		before[h] = in.served(h)
		in.clear(h)
	}
	var list []*networkingv1.Ingress
	for name := range members {
		old := in.objects[name]
		now, isChanged := changed[name]
		if !isChanged {
			now = old
		}
		u.detach(RouteKey{"Ingress", name})
		if old != nil {
			in.forget(old)
		}
		if now != nil && u.classes[classOf(now)] {
			list = append(list, now)
		}
	}
	u.compileAll(in, list)
	if len(in.objects) == 0 || in.special || len(in.through) > 0 {
		return false
	}
	for h, was := range before {
		if in.served(h) != was || (h == "" || strings.HasPrefix(h, "*")) && in.certificateOf(h) != nil {
			return false
		}
		u.noteHost(h)
	}
	return true
}

// certificateOf is that of a host, of its own or another's.
func (in *ingresses) certificateOf(name string) *tls.Certificate {
	if r := in.tls(name); r != nil {
		return r.Certificate
	}
	return nil
}

// served is by which listener a host is served over TLS, and with which certificate.
type served struct {
	certificate *tls.Certificate
	listener    string
}

func (in *ingresses) served(name string) served {
	return served{in.certificateOf(name), in.listenerOf(name)}
}

// clear takes away what Ingresses say of a host.
func (in *ingresses) clear(name string) {
	delete(in.hosts, name)
	delete(in.plain, name)
	delete(in.secure, name)
}

// noteHost has the listeners made anew that have a host's rules.
func (u *updating) noteHost(name string) {
	in := u.in
	u.note(in.plainListener, name)
	for _, hostname := range []string{name, in.listenerOf(name)} {
		l := in.secureListeners[hostname]
		if l == nil {
			continue
		}
		if hostname == in.listenerOf(name) && len(in.secure[name]) > 0 {
			l.rules[name] = in.secure[name]
		} else {
			delete(l.rules, name)
		}
		u.note(l, name)
	}
}
