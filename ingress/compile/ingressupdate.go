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
	if in == nil || in.plainListener == nil || len(in.www)+len(in.through)+len(in.clients) > 0 || in.balanced {
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
	certificates := map[string]*tls.Certificate{}
	for h := range hosts {
		if (h == "" || strings.HasPrefix(h, "*")) && len(in.certs) > 0 { // others' listeners have its rules
			return false
		}
		certificates[h] = in.certs[h]
		in.clear(h)
	}
	var list []*networkingv1.Ingress
	for name := range members {
		before := in.objects[name]
		now, isChanged := changed[name]
		if !isChanged {
			now = before
		}
		u.detach(RouteKey{"Ingress", name})
		if before != nil {
			in.forget(before)
		}
		if now != nil && u.classes[classOf(now)] {
			list = append(list, now)
		}
	}
	u.compileAll(in, list)
	if len(in.objects) == 0 || len(in.www)+len(in.through)+len(in.clients) > 0 {
		return false
	}
	for h, before := range certificates {
		if in.certs[h] != before {
			return false
		}
		u.noteHost(h)
	}
	return true
}

// clear takes away what Ingresses say of a host.
func (in *ingresses) clear(host string) {
	for _, r := range in.plain[host] {
		key := mainKey(host, &r.Match)
		delete(in.claimed, key)
		delete(in.mains, key)
	}
	delete(in.plain, host)
	delete(in.secure, host)
	delete(in.certs, host)
	delete(in.issuers, host)
}

// noteHost has the listeners made anew that have a host's rules.
func (u *updating) noteHost(host string) {
	u.note(u.in.plainListener, host)
	for hostname, l := range u.in.secureListeners {
		if hostname != host && !strings.HasPrefix(hostname, "*") && hostname != "" {
			continue
		}
		if u.in.has(hostname, host) && len(u.in.secure[host]) > 0 {
			l.rules[host] = u.in.secure[host]
		} else {
			delete(l.rules, host)
		}
		u.note(l, host)
	}
}

// has reports whether the listener for the hostname of a certificate serves a host
// of rules: its own, those of any name, and those without a certificate that it covers.
func (in *ingresses) has(hostname, host string) bool {
	return host == hostname || host == "" || coversRules(hostname, host) && in.certs[host] == nil
}
