package compile

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/model"
)

// source is where a pool's endpoints come from.
type source struct {
	service types.NamespacedName
	port    *corev1.ServicePort
	fixed   bool // endpoints are what they are: the Service's cluster IP
}

// Changes are objects as they are now, by name; nil for one that is gone.
type Changes struct {
	HTTPRoutes map[types.NamespacedName]*gatewayv1.HTTPRoute
	GRPCRoutes map[types.NamespacedName]*gatewayv1.GRPCRoute
	Ingresses  map[types.NamespacedName]*networkingv1.Ingress
	Services   map[types.NamespacedName]*corev1.Service
	// Moved are Services whose endpoints are others.
	Moved map[types.NamespacedName]struct{}
}

// Update makes the table that follows from changes of routes, Ingresses, Services and
// endpoints alone. It costs what the changes cost, however large the table is.
// Statuses and the lists of Objects stay as they were, but for Services. It
// reports false if all has to be compiled; the Output is of no use any more then, and
// the table that is served is as it was.
func (o *Output) Update(changes Changes, options Options) bool {
	c := o.compiler
	if !c.options.TableOnly || slices.ContainsFunc(slices.Collect(maps.Keys(changes.Services)), func(name types.NamespacedName) bool {
		return c.isFixed(name, changes.Services[name])
	}) {
		return false
	}
	if !c.serves(IngressGateway) {
		changes.Ingresses = nil
	}
	if len(changes.Ingresses) > 0 && !c.canUpdate(changes.Ingresses) {
		return false
	}
	options.TableOnly, options.Certificates = true, c.options.Certificates
	c.options = options
	u := &updating{compiler: c, dirty: map[*listener]map[string]struct{}{}}
	o.Table = &model.Table{Sockets: o.Table.Sockets, Pools: maps.Clone(o.Table.Pools), Challenges: o.Table.Challenges}
	again := map[RouteKey]struct{}{}
	for name, s := range changes.Services {
		for _, key := range c.refs.of(name) {
			again[key] = struct{}{}
		}
		if s == nil {
			delete(c.Services, name)
		} else {
			c.Services[name] = s
		}
	}
	u.noteRoutes(changes, again)
	ingresses := maps.Clone(changes.Ingresses)
	for key := range again {
		if key.Kind != "Ingress" {
			continue
		}
		delete(again, key)
		if _, changed := ingresses[key.NamespacedName]; !changed {
			if ingresses == nil {
				ingresses = map[types.NamespacedName]*networkingv1.Ingress{}
			}
			ingresses[key.NamespacedName] = c.in.objects[key.NamespacedName]
		}
	}
	if len(ingresses) > 0 && (!c.canUpdate(ingresses) || !u.updateIngresses(ingresses)) {
		return false
	}
	for key := range again {
		u.detach(key)
	}
	for key := range again {
		u.attach(key)
	}
	u.finish()
	o.refresh(changes.Moved)
	return true
}

// Concerns reports whether anything depends on a Service, as it was or as it is now;
// nil if it is gone.
func (o *Output) Concerns(name types.NamespacedName, now *corev1.Service) bool {
	return len(o.compiler.refs.of(name)) > 0 || o.compiler.isFixed(name, now)
}

// NeedsEndpoints reports whether endpoints of a Service are written for others to
// see: those of streams, and of Gateways.
func (o *Output) NeedsEndpoints(name types.NamespacedName) bool {
	return o.compiler.isFixed(name, o.compiler.Services[name])
}

// isFixed reports whether more depends on a Service than routes.
func (c *compiler) isFixed(name types.NamespacedName, now *corev1.Service) bool {
	if _, fixed := c.refs.fixed[name]; fixed {
		return true
	}
	// The Service of a Gateway says where an engine listens.
	before := c.Services[name]
	if c.serves(IngressGateway) && (isBalanced(now) || isBalanced(before) || c.ConfigMaps[BalancerConfig] != nil) {
		return true
	}
	return now != nil && now.Labels[gatewayv1.GatewayNameLabelKey] != "" || before != nil && before.Labels[gatewayv1.GatewayNameLabelKey] != ""
}

// updating is an update under way.
type updating struct {
	*compiler
	dirty map[*listener]map[string]struct{} // hostnames whose rules are others
}

// noteRoutes keeps the routes as they are now, and adds them to those that are
// read again.
func (u *updating) noteRoutes(changes Changes, again map[RouteKey]struct{}) {
	for name, r := range changes.HTTPRoutes {
		key := RouteKey{"HTTPRoute", name}
		if again[key] = struct{}{}; r == nil {
			delete(u.httpRoutes, name)
		} else {
			u.httpRoutes[name] = r
		}
	}
	for name, r := range changes.GRPCRoutes {
		key := RouteKey{"GRPCRoute", name}
		if again[key] = struct{}{}; r == nil {
			delete(u.grpcRoutes, name)
		} else {
			u.grpcRoutes[name] = r
		}
	}
}

// detach takes a route's rules away, and the pools that only it uses.
func (u *updating) detach(key RouteKey) {
	r := u.refs.routes[key]
	if r == nil {
		return
	}
	for _, a := range r.attachments {
		for _, h := range a.hostnames {
			u.note(a.listener, h)
			a.rules[h] = slices.DeleteFunc(a.rules[h], func(o orderedRule) bool { return o.route.kind == key.Kind && o.route.name() == key.NamespacedName })
			if len(a.rules[h]) == 0 {
				delete(a.rules, h)
			}
		}
	}
	for _, name := range u.refs.forget(r) {
		u.out.dropPool(name)
	}
}

// attach reads a route, if it is still there.
func (u *updating) attach(key RouteKey) {
	if r := u.httpRoutes[key.NamespacedName]; r != nil && key.Kind == "HTTPRoute" {
		u.compileHTTPRoute(r)
	}
	if r := u.grpcRoutes[key.NamespacedName]; r != nil && key.Kind == "GRPCRoute" {
		u.compileGRPCRoute(r)
	}
	if r := u.refs.routes[key]; r != nil {
		for _, a := range r.attachments {
			for _, h := range a.hostnames {
				u.note(a.listener, h)
			}
		}
	}
}

func (u *updating) note(l *listener, hostname string) {
	if u.dirty[l] == nil {
		u.dirty[l] = map[string]struct{}{}
	}
	u.dirty[l][hostname] = struct{}{}
}

// finish makes the listeners and sockets anew in which something is other.
func (u *updating) finish() {
	listeners := map[*model.Listener]*model.Listener{}
	for l, hostnames := range u.dirty {
		if l.done == nil || l.socket == nil { // it serves nothing
			continue
		}
		hosts := map[string]*model.Host{}
		for h := range hostnames {
			hosts[h] = l.host(h)
		}
		before := l.done
		l.done = before.WithHosts(hosts)
		listeners[before] = l.done
	}
	if len(listeners) == 0 {
		return
	}
	table := u.out.Table
	table.Sockets = slices.Clone(table.Sockets)
	for i, s := range table.Sockets {
		if slices.ContainsFunc(s.Listeners, func(l *model.Listener) bool { return listeners[l] != nil }) {
			table.Sockets[i] = s.With(listeners)
		}
	}
}

// Uses reports whether the table has endpoints of a Service.
func (o *Output) Uses(service types.NamespacedName) bool { return len(o.pools[service]) > 0 }

func (o *Output) addPool(p *model.Pool, from source) {
	o.Table.Pools[p.Name], o.sources[p.Name] = p, from
	o.pools[from.service] = append(o.pools[from.service], p.Name)
}

func (o *Output) dropPool(name string) {
	service := o.sources[name].service
	delete(o.Table.Pools, name)
	delete(o.sources, name)
	rest := slices.DeleteFunc(o.pools[service], func(n string) bool { return n == name })
	if o.pools[service] = rest; len(rest) == 0 {
		delete(o.pools, service)
	}
}

// refresh gives the pools of Services the endpoints that they have now.
func (o *Output) refresh(services map[types.NamespacedName]struct{}) {
	for service := range services {
		for _, name := range o.pools[service] {
			if o.sources[name].fixed {
				continue
			}
			p := *o.Table.Pools[name]
			p.Endpoints = o.compiler.options.Endpoints(service, o.sources[name].port)
			o.Table.Pools[name] = &p
		}
	}
}
