package bundle

import (
	"net/netip"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/diagnose/explain"
)

// Mask replaces addresses of prefixes, each by another one that is the same in all
// files: what is joined by addresses stays joined. The zero Mask replaces none.
type Mask struct {
	Prefixes []netip.Prefix

	given    map[netip.Addr]netip.Addr
	v4, v6   netip.Addr // the last one given
	prepared bool
}

// The replacements are of ranges that no network uses: RFC 2544 and RFC 3849.
var (
	from4 = netip.MustParseAddr("198.18.0.0")
	from6 = netip.MustParseAddr("2001:db8:fa17::")
)

// addresses are what may be one.
var addresses = regexp.MustCompile(`[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9a-fA-F]{0,4}:[0-9a-fA-F:]*:[0-9a-fA-F:.]*`)

// apply returns the text with addresses replaced.
func (m *Mask) apply(text []byte) []byte {
	if !m.replaces() {
		return text
	}
	return addresses.ReplaceAllFunc(text, func(found []byte) []byte {
		a, err := netip.ParseAddr(string(found))
		if err != nil || !m.covers(a) {
			return found
		}
		return []byte(m.replacement(a).String())
	})
}

func (m *Mask) covers(a netip.Addr) bool {
	for _, p := range m.Prefixes {
		if p.Contains(a.Unmap()) {
			return true
		}
	}
	return false
}

func (m *Mask) replacement(a netip.Addr) netip.Addr {
	if !m.prepared {
		m.given, m.v4, m.v6, m.prepared = map[netip.Addr]netip.Addr{}, from4, from6, true
	}
	a = a.Unmap()
	if r, ok := m.given[a]; ok {
		return r
	}
	last := &m.v6
	if a.Is4() {
		last = &m.v4
	}
	*last = last.Next()
	m.given[a] = *last
	return *last
}

// replaces reports whether any address is replaced.
func (m *Mask) replaces() bool { return m != nil && len(m.Prefixes) > 0 }

// hidden takes the place of a value.
const hidden = "(hidden)"

// withoutValues is a copy of the objects without what says nothing of packets and may be a
// secret: the values of environment variables, commands and arguments, probes, hooks and volumes, and annotations that
// repeat whole objects.
func withoutValues(o *explain.Objects) *explain.Objects {
	masked := *o
	masked.Pods = nil
	for _, p := range o.Pods {
		p = p.DeepCopy()
		for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range containers {
				hideValues(&containers[i])
			}
		}
		p.Annotations, p.ManagedFields = nil, nil
		p.Spec.EphemeralContainers, p.Spec.Volumes = nil, nil
		masked.Pods = append(masked.Pods, p)
	}
	masked.Services = copies(o.Services, (*corev1.Service).DeepCopy)
	masked.Nodes = copies(o.Nodes, (*corev1.Node).DeepCopy)
	return &masked
}

func hideValues(c *corev1.Container) {
	for i := range c.Env {
		if c.Env[i].Value != "" {
			c.Env[i].Value = hidden
		}
	}
	for _, words := range [][]string{c.Command, c.Args} {
		for i := range words {
			words[i] = hidden
		}
	}
	// They have commands too, and headers such as Authorization.
	c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil
}

// copies are without the annotation in which kubectl repeats the object, and without who wrote which field.
func copies[T metav1.Object](list []T, deep func(T) T) []T {
	var out []T
	for _, o := range list {
		o = deep(o)
		annotations := o.GetAnnotations()
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		o.SetAnnotations(annotations)
		o.SetManagedFields(nil)
		out = append(out, o)
	}
	return out
}
