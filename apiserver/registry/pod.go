package registry

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/upstream"
	"github.com/fairway-net/fairway/apiserver/validation"
)

func pods() *kind[corev1.Pod, *corev1.Pod] {
	return &kind[corev1.Pod, *corev1.Pod]{
		version: corev1.SchemeGroupVersion, resource: "pods", singular: "pod",
		shortNames: []string{"po"}, categories: []string{"all"},
		list:     func() runtime.Object { return &corev1.PodList{} },
		rules:    upstream.Pods,
		fields:   podFields,
		indexed:  map[string]func(*corev1.Pod) string{"spec.nodeName": func(p *corev1.Pod) string { return p.Spec.NodeName }},
		graceful: gracefulPodDelete,
		table:    tables.Pods(),
	}
}

func podFields(p *corev1.Pod) fields.Set {
	ips := ""
	for _, ip := range p.Status.PodIPs {
		ips += ip.IP
	}
	return fields.Set{
		"spec.nodeName":            p.Spec.NodeName,
		"spec.restartPolicy":       string(p.Spec.RestartPolicy),
		"spec.schedulerName":       p.Spec.SchedulerName,
		"spec.serviceAccountName":  p.Spec.ServiceAccountName,
		"spec.hostNetwork":         strconv.FormatBool(p.Spec.HostNetwork),
		"status.phase":             string(p.Status.Phase),
		"status.podIP":             p.Status.PodIP,
		"status.podIPs":            ips,
		"status.nominatedNodeName": p.Status.NominatedNodeName,
	}
}

// gracefulPodDelete gives a Pod the time to end that its spec or the request
// asks for; its node then deletes it for good. A Pod that runs nowhere, or no
// more, goes at once.
func gracefulPodDelete(_ context.Context, p *corev1.Pod, options *metav1.DeleteOptions) bool {
	var period int64
	switch {
	case p.Spec.NodeName == "" || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
	case options.GracePeriodSeconds != nil:
		period = *options.GracePeriodSeconds
	case p.Spec.TerminationGracePeriodSeconds != nil:
		period = *p.Spec.TerminationGracePeriodSeconds
	}
	if period < 0 {
		period = 1
	}
	options.GracePeriodSeconds = &period
	return true
}

// bindingREST assigns Pods to Nodes, for schedulers.
type bindingREST struct{ store *genericregistry.Store }

func (b *bindingREST) New() runtime.Object { return &corev1.Binding{} }

// Destroy leaves the store to its owner.
func (b *bindingREST) Destroy() {}

func (b *bindingREST) NamespaceScoped() bool { return true }

// Create implements rest.NamedCreater.
func (b *bindingREST) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding: %T", obj))
	}
	if name != binding.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validation.Binding(binding); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Binding"}, name, errs)
	}
	if validate != nil {
		if err := validate(ctx, binding.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	bind := func(_ context.Context, obj, _ runtime.Object) (runtime.Object, error) {
		pod := obj.(*corev1.Pod)
		if err := mayBind(pod, binding); err != nil {
			return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, name, err)
		}
		pod.Spec.NodeName, pod.Status.NominatedNodeName = binding.Target.Name, ""
		for k, v := range binding.Annotations {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, v)
		}
		for k, v := range binding.Labels {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, k, v)
		}
		setScheduled(pod)
		return pod, nil
	}
	store := *b.store
	store.UpdateStrategy = bindStrategy{b.store.UpdateStrategy}
	info := rest.DefaultUpdatedObjectInfo(nil, func(ctx context.Context, _, old runtime.Object) (runtime.Object, error) {
		return bind(ctx, old.DeepCopyObject(), old)
	})
	_, _, err := store.Update(ctx, name, info, nil, nil, false, &metav1.UpdateOptions{DryRun: options.DryRun})
	if err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// mayBind says why a Pod can't be bound, as kube-apiserver does: also where it isn't the one that
// the scheduler saw.
func mayBind(pod *corev1.Pod, binding *corev1.Binding) error {
	switch {
	case binding.UID != "" && binding.UID != pod.UID:
		return fmt.Errorf("precondition failed: UID in precondition: %s, UID in object meta: %s", binding.UID, pod.UID)
	case binding.ResourceVersion != "" && binding.ResourceVersion != pod.ResourceVersion:
		return fmt.Errorf("precondition failed: resourceVersion in precondition: %s, in object meta: %s", binding.ResourceVersion, pod.ResourceVersion)
	case pod.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return fmt.Errorf("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return fmt.Errorf("pod %s has non-empty .spec.schedulingGates", pod.Name)
	}
	return nil
}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the UID and the resource version of
// a Binding, which are preconditions.
func (b *bindingREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// bindStrategy lets the node name and the scheduled condition be set, which
// ordinary updates of a Pod keep.
type bindStrategy struct{ rest.RESTUpdateStrategy }

func (bindStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	pod := obj.(*corev1.Pod)
	pod.Generation = old.(*corev1.Pod).Generation + 1
}

// ValidateUpdate has nothing to say: all that changes is set above.
func (bindStrategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}

func setScheduled(pod *corev1.Pod) {
	condition := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodScheduled {
			pod.Status.Conditions[i] = condition
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, condition)
}
