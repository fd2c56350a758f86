package dns

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// client is whose address it is, as far as that is known.
type client struct {
	namespace string
	refs      int
	shared    bool // pods of several namespaces have it (hostNetwork)
}

// clientOf is one object's word that an address is of a pod of a namespace.
type clientOf struct {
	address   netip.Addr
	namespace string
}

func (x *Index) addClient(c clientOf) {
	was := x.clients[c.address]
	was.shared = was.shared || was.refs > 0 && was.namespace != c.namespace
	was.namespace = c.namespace
	was.refs++
	x.clients[c.address] = was
}

func (x *Index) removeClient(c clientOf) {
	was := x.clients[c.address]
	if was.refs--; was.refs <= 0 {
		delete(x.clients, c.address)
		return
	}
	x.clients[c.address] = was
}

// SetPod tells of a pod whose questions may come here: those that no slice
// lists are known by this alone.
func (x *Index) SetPod(p *corev1.Pod) {
	key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	var addresses []netip.Addr
	if !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				addresses = append(addresses, a.Unmap())
			}
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.replacePod(key, addresses)
}

// DeletePod forgets a pod.
func (x *Index) DeletePod(key types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.replacePod(key, nil)
}

func (x *Index) replacePod(key types.NamespacedName, addresses []netip.Addr) {
	for _, a := range x.pods[key] {
		x.removeClient(clientOf{a, key.Namespace})
	}
	for _, a := range addresses {
		x.addClient(clientOf{a, key.Namespace})
	}
	if len(addresses) == 0 {
		delete(x.pods, key)
	} else {
		x.pods[key] = addresses
	}
}

// searchPath is what the resolver of the pod with an address appends to short
// names, and "" at the end for the name itself; nil if the pod isn't known.
func (x *Index) searchPath(a netip.Addr) []string {
	x.mu.RLock()
	c, known := x.clients[a]
	x.mu.RUnlock()
	if !known || c.shared {
		return nil
	}
	path := []string{c.namespace + ".svc." + x.zone, "svc." + x.zone, x.zone}
	path = append(path, x.config.Search...)
	return append(path, "")
}
