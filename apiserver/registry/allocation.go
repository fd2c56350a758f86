package registry

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairway-net/fairway/apiserver/allocator"
)

// allocation gives one Service, valid and with its families decided, the
// cluster IPs and node ports that it lacks.
type allocation struct {
	svc, old *corev1.Service
	request  *request
	// dryRun believes the memory about what is taken: nothing will be
	// written that etcd could refuse.
	dryRun bool
}

func (a *allocation) run() field.ErrorList {
	errs := a.clusterIPs()
	errs = append(errs, a.nodePorts()...)
	return append(errs, a.healthCheckNodePort()...)
}

func (a *allocation) clusterIPs() field.ErrorList {
	spec := &a.svc.Spec
	if !needsClusterIP(a.svc) || spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	var had []string
	if a.old != nil {
		had = a.old.Spec.ClusterIPs
	}
	given := slices.Clone(spec.ClusterIPs)
	ips := make([]string, len(spec.IPFamilies))
	var errs field.ErrorList
	for i, family := range spec.IPFamilies {
		if i < len(given) && given[i] != "" {
			ips[i] = given[i]
			if slices.Contains(had, given[i]) {
				continue
			}
			refuse := func(reason error) *field.Error {
				return field.Invalid(ipsPath, given, fmt.Sprintf("failed to allocate IP %s: %v", given[i], reason))
			}
			a.ask(allocator.ClusterIPKey(given[i]), refuse(allocator.ErrIPAllocated))
			if err := a.request.plan.RequestClusterIP(given[i], types.NamespacedName{Namespace: a.svc.Namespace, Name: a.svc.Name}); a.refused(err) {
				errs = append(errs, refuse(err))
			}
			continue
		}
		ip, err := a.request.plan.ClusterIP(family)
		if err != nil {
			errs = append(errs, field.Invalid(ipsPath, field.OmitValueType{}, fmt.Sprintf("failed to allocate a serviceIP: %v", err)))
			continue
		}
		ips[i] = ip
	}
	if len(errs) == 0 {
		spec.ClusterIPs, spec.ClusterIP = ips, ips[0]
	}
	return errs
}

func (a *allocation) nodePorts() field.ErrorList {
	var had []int32
	if a.old != nil {
		had = append(had, a.old.Spec.HealthCheckNodePort)
		for _, p := range a.old.Spec.Ports {
			had = append(had, p.NodePort)
		}
	}
	var errs field.ErrorList
	byPort := map[int32]int32{}
	for i := range a.svc.Spec.Ports {
		p := &a.svc.Spec.Ports[i]
		if p.NodePort == 0 {
			continue
		}
		byPort[p.Port] = p.NodePort
		if slices.Contains(had, p.NodePort) {
			continue
		}
		had = append(had, p.NodePort)
		path := specPath.Child("ports").Index(i).Child("nodePort")
		if err := a.requestNodePort(path, p.NodePort); err != nil {
			errs = append(errs, err)
		}
	}
	if !needsNodePort(a.svc) {
		return errs
	}
	for i := range a.svc.Spec.Ports {
		p := &a.svc.Spec.Ports[i]
		if p.NodePort != 0 {
			continue
		}
		// The same port on another protocol: one node port serves both.
		if shared := byPort[p.Port]; shared != 0 && !a.nodePortInUse(shared, p.Protocol) {
			p.NodePort = shared
			continue
		}
		n, err := a.request.plan.NodePort()
		if err != nil {
			// The others would fail too, each after a search of the whole range.
			return append(errs, field.Invalid(specPath.Child("ports").Index(i).Child("nodePort"), field.OmitValueType{}, fmt.Sprintf("failed to allocate a nodePort: %v", err)))
		}
		p.NodePort = n
		byPort[p.Port] = n
	}
	return errs
}

func (a *allocation) nodePortInUse(n int32, protocol corev1.Protocol) bool {
	return slices.ContainsFunc(a.svc.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.NodePort == n && p.Protocol == protocol
	})
}

func (a *allocation) healthCheckNodePort() field.ErrorList {
	if !needsHealthCheckNodePort(a.svc) {
		return nil
	}
	path := specPath.Child("healthCheckNodePort")
	if n := a.svc.Spec.HealthCheckNodePort; n != 0 {
		if a.old != nil && a.old.Spec.HealthCheckNodePort == n {
			return nil
		}
		if err := a.requestNodePort(path, n); err != nil {
			return field.ErrorList{err}
		}
		return nil
	}
	n, err := a.request.plan.NodePort()
	if err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, fmt.Sprintf("failed to allocate a HealthCheck NodePort: %v", err))}
	}
	a.svc.Spec.HealthCheckNodePort = n
	return nil
}

func (a *allocation) requestNodePort(path *field.Path, n int32) *field.Error {
	a.ask(allocator.NodePortKey(n), field.Invalid(path, n, allocator.ErrPortAllocated.Error()))
	if err := a.request.plan.RequestNodePort(n); a.refused(err) {
		return field.Invalid(path, n, err.Error())
	}
	return nil
}

func (a *allocation) ask(key string, refusal *field.Error) { a.request.asked[key] = refusal }

// refused says whether a request for a number has failed for good. That it
// looks taken is only a memory, which the write will put to the test.
func (a *allocation) refused(err error) bool {
	if errors.Is(err, allocator.ErrIPAllocated) || errors.Is(err, allocator.ErrPortAllocated) {
		return a.dryRun
	}
	return err != nil
}
