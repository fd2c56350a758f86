package v1beta1

// DefaultNamespace is where MetalLB and its configuration usually live.
const DefaultNamespace = "metallb-system"

// Annotations of Services. Each is also known with OldPrefix.
const (
	Prefix    = "metallb.io/"
	OldPrefix = "metallb.universe.tf/"

	AnnotationAddressPool     = Prefix + "address-pool"
	AnnotationAllowSharedIP   = Prefix + "allow-shared-ip"
	AnnotationLoadBalancerIPs = Prefix + "loadBalancerIPs"
	// AnnotationFromPool is written: the pool of a Service's addresses.
	AnnotationFromPool = Prefix + "ip-allocated-from-pool"
)

// Labels of status objects.
const (
	LabelNode             = Prefix + "node"
	LabelServiceName      = Prefix + "service-name"
	LabelServiceNamespace = Prefix + "service-namespace"
	LabelComponent        = Prefix + "component-type"
	LabelNodeName         = Prefix + "node-name"
)

// Annotation returns what an annotation with Prefix says, or the same one with
// OldPrefix where the new one is absent; "" if neither is there.
func Annotation(annotations map[string]string, name string) string {
	if value, ok := annotations[name]; ok {
		return value
	}
	return annotations[OldPrefix+name[len(Prefix):]]
}
