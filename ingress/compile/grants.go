package compile

import (
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// grants are the references across namespaces that are allowed.
type grants map[grant]struct{}

// grant lets objects of a kind in a namespace refer to one of another kind in
// another namespace, or to all if name is "".
type grant struct {
	fromGroup, fromKind, fromNamespace string
	toGroup, toKind, toNamespace, name string
}

func readGrants(list []*gatewayv1.ReferenceGrant) grants {
	g := grants{}
	for _, o := range list {
		for _, from := range o.Spec.From {
			for _, to := range o.Spec.To {
				g[grant{
					string(from.Group), string(from.Kind), string(from.Namespace),
					string(to.Group), string(to.Kind), o.Namespace, string(value(to.Name, "")),
				}] = struct{}{}
			}
		}
	}
	return g
}

// allow reports whether an object of Gateway API may refer to another.
func (g grants) allow(kind, namespace, toGroup, toKind string, to types.NamespacedName) bool {
	return g.allowFrom(gatewayv1.GroupName, kind, namespace, toGroup, toKind, to)
}

// allowFrom is [grants.allow] for objects of any group.
func (g grants) allowFrom(group, kind, namespace, toGroup, toKind string, to types.NamespacedName) bool {
	if namespace == to.Namespace {
		return true
	}
	one := grant{group, kind, namespace, toGroup, toKind, to.Namespace, to.Name}
	if _, given := g[one]; given {
		return true
	}
	one.name = ""
	_, given := g[one]
	return given
}
