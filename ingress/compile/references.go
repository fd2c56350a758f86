package compile

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// references say what routes depend on, so that a change is followed where it
// leads and nowhere else.
type references struct {
	routes   map[RouteKey]*referrer
	services map[types.NamespacedName][]RouteKey // which routes look for a Service
	users    map[string]int                      // of pools, by name: how many routes
	// fixed are the Services of what isn't brought up to date by itself: Ingresses,
	// TLSRoutes, streams. Their pools stay, too.
	fixed   map[types.NamespacedName]struct{}
	current *referrer // nil while one of those is compiled
}

// referrer is an HTTPRoute or GRPCRoute with what it depends on.
type referrer struct {
	key         RouteKey
	attachments []attachment
	services    []types.NamespacedName
	pools       []string
}

func newReferences() references {
	return references{
		routes: map[RouteKey]*referrer{}, services: map[types.NamespacedName][]RouteKey{},
		users: map[string]int{}, fixed: map[types.NamespacedName]struct{}{},
	}
}

// begin has what is looked for noted as the route's, until end.
func (f *references) begin(r *route) {
	f.current = &referrer{key: r.key()}
	f.routes[f.current.key] = f.current
}

// resume has more noted as the route's, which begin has seen.
func (f *references) resume(r *route) { f.current = f.routes[r.key()] }

func (f *references) end() { f.current = nil }

func (f *references) attached(r *route, list []attachment) {
	if f.current != nil && f.current.key == r.key() {
		f.current.attachments = list
	}
}

func (f *references) service(name types.NamespacedName) {
	if f.current == nil {
		f.fixed[name] = struct{}{}
		return
	}
	if slices.Contains(f.current.services, name) {
		return
	}
	f.current.services = append(f.current.services, name)
	f.services[name] = append(f.services[name], f.current.key)
}

func (f *references) pool(name string) {
	if f.current == nil {
		f.users[name]++ // for ever
		return
	}
	if !slices.Contains(f.current.pools, name) {
		f.current.pools = append(f.current.pools, name)
		f.users[name]++
	}
}

// forget takes a route out, and returns the pools that nobody uses any more.
func (f *references) forget(r *referrer) (unused []string) {
	delete(f.routes, r.key)
	for _, s := range r.services {
		rest := slices.DeleteFunc(f.services[s], func(k RouteKey) bool { return k == r.key })
		if f.services[s] = rest; len(rest) == 0 {
			delete(f.services, s)
		}
	}
	for _, p := range r.pools {
		if f.users[p]--; f.users[p] == 0 {
			delete(f.users, p)
			unused = append(unused, p)
		}
	}
	return unused
}

// of lists the routes that look for a Service.
func (f *references) of(service types.NamespacedName) []RouteKey {
	return f.services[service]
}
