package defaults

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Pod fills in a Pod's defaults.
func Pod(p *corev1.Pod) {
	PodSpec(&p.Spec)
	setPointer(&p.Spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
}

// PodSpec fills in the defaults that Pods and Pod templates share.
func PodSpec(spec *corev1.PodSpec) {
	setDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	setDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	setDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	setPointer(&spec.SecurityContext, corev1.PodSecurityContext{})
	setPointer(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	if spec.ServiceAccountName == "" {
		spec.ServiceAccountName = spec.DeprecatedServiceAccount
	}
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	for i := range spec.InitContainers {
		container(&spec.InitContainers[i], spec.HostNetwork)
	}
	for i := range spec.Containers {
		container(&spec.Containers[i], spec.HostNetwork)
	}
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		container(&c, spec.HostNetwork)
		spec.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
	}
	for i := range spec.Volumes {
		volume(&spec.Volumes[i].VolumeSource)
	}
}

func container(c *corev1.Container, hostNetwork bool) {
	setDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	setDefault(&c.ImagePullPolicy, pullPolicy(c.Image))
	for i := range c.Ports {
		setDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
		if hostNetwork {
			setDefault(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		probe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				httpGet(h.HTTPGet)
			}
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			setDefault(&from.FieldRef.APIVersion, "v1")
		}
	}
	for name, limit := range c.Resources.Limits {
		if _, set := c.Resources.Requests[name]; set {
			continue
		}
		if c.Resources.Requests == nil {
			c.Resources.Requests = corev1.ResourceList{}
		}
		c.Resources.Requests[name] = limit.DeepCopy()
	}
}

// pullPolicy is Always for a moving tag: none at all, or "latest".
func pullPolicy(image string) corev1.PullPolicy {
	if strings.Contains(image, "@") {
		return corev1.PullIfNotPresent
	}
	_, tag, tagged := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !tagged || tag == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func probe(p *corev1.Probe) {
	if p == nil {
		return
	}
	setDefault(&p.TimeoutSeconds, 1)
	setDefault(&p.PeriodSeconds, 10)
	setDefault(&p.SuccessThreshold, 1)
	setDefault(&p.FailureThreshold, 3)
	httpGet(p.HTTPGet)
	if p.GRPC != nil {
		setPointer(&p.GRPC.Service, "")
	}
}

func httpGet(a *corev1.HTTPGetAction) {
	if a == nil {
		return
	}
	setDefault(&a.Path, "/")
	setDefault(&a.Scheme, corev1.URISchemeHTTP)
}

// volume gives a volume without a source an empty directory, and files their
// documented mode.
func volume(v *corev1.VolumeSource) {
	if *v == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.ConfigMap != nil:
		setPointer(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	case v.Secret != nil:
		setPointer(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	case v.Projected != nil:
		setPointer(&v.Projected.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
		for i := range v.Projected.Sources {
			if t := v.Projected.Sources[i].ServiceAccountToken; t != nil {
				setPointer(&t.ExpirationSeconds, tokenSeconds)
			}
		}
	case v.DownwardAPI != nil:
		setPointer(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
	case v.HostPath != nil:
		setPointer(&v.HostPath.Type, corev1.HostPathUnset)
	}
}
