package registry

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fairway-net/fairway/apiserver/validation"
)

// scaleREST shows the number of replicas of an object that has them as a Scale.
type scaleREST struct{ store *genericregistry.Store }

func (r *scaleREST) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy leaves the store to its owner.
func (r *scaleREST) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider.
func (r *scaleREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
}

// Get implements rest.Getter.
func (r *scaleREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return scaleOf(obj)
}

// Update implements rest.Updater.
func (r *scaleREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	obj, _, err := r.store.Update(ctx, name, &scaleUpdate{resource: r.store.DefaultQualifiedResource, name: name, info: info}, rest.ValidateAllObjectFunc, scaleAdmission(update), false, options)
	if err != nil {
		return nil, false, err
	}
	scale, err := scaleOf(obj)
	return scale, false, err
}

// ConvertToTable implements rest.TableConvertor.
func (r *scaleREST) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return rest.NewDefaultTableConvertor(r.store.DefaultQualifiedResource).ConvertToTable(ctx, obj, options)
}

// scaleUpdate applies a change of the Scale to the object.
type scaleUpdate struct {
	resource schema.GroupResource
	name     string
	info     rest.UpdatedObjectInfo
}

func (u *scaleUpdate) Preconditions() *metav1.Preconditions { return u.info.Preconditions() }

func (u *scaleUpdate) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	scaled, ok := scalableOf(old.DeepCopyObject())
	if !ok || scaled.GetUID() == "" {
		return nil, apierrors.NewNotFound(u.resource, u.name)
	}
	before, err := scaled.scale()
	if err != nil {
		return nil, err
	}
	obj, err := u.info.UpdatedObject(ctx, before)
	if err != nil {
		return nil, err
	}
	scale, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected input object type to be Scale, but %T", obj))
	}
	if errs := validation.Scale(scale); len(errs) > 0 {
		return nil, apierrors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), u.name, errs)
	}
	*scaled.replicas = &scale.Spec.Replicas
	// An empty version updates whatever is there; a stale one conflicts.
	scaled.SetResourceVersion(scale.ResourceVersion)
	return scaled.object, nil
}

// scaleAdmission shows admission the Scales that it was asked about.
func scaleAdmission(update rest.ValidateObjectUpdateFunc) rest.ValidateObjectUpdateFunc {
	if update == nil {
		return nil
	}
	return func(ctx context.Context, obj, old runtime.Object) error {
		scale, err := scaleOf(obj)
		if err != nil {
			return err
		}
		before, err := scaleOf(old)
		if err != nil {
			return err
		}
		return update(ctx, scale, before)
	}
}

// scalable is an object that has replicas.
type scalable struct {
	metav1.Object
	object   runtime.Object
	replicas **int32
	running  int32
	selector *metav1.LabelSelector
}

func scalableOf(obj runtime.Object) (scalable, bool) {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return scalable{o, o, &o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector}, true
	case *appsv1.ReplicaSet:
		return scalable{o, o, &o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector}, true
	case *appsv1.StatefulSet:
		return scalable{o, o, &o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector}, true
	case *corev1.ReplicationController:
		return scalable{o, o, &o.Spec.Replicas, o.Status.Replicas, &metav1.LabelSelector{MatchLabels: o.Spec.Selector}}, true
	}
	return scalable{}, false
}

func scaleOf(obj runtime.Object) (*autoscalingv1.Scale, error) {
	s, ok := scalableOf(obj)
	if !ok {
		return nil, fmt.Errorf("scale: stored object is a %T", obj)
	}
	return s.scale()
}

func (s scalable) scale() (*autoscalingv1.Scale, error) {
	selector, err := metav1.LabelSelectorAsSelector(s.selector)
	if err != nil {
		return nil, fmt.Errorf("read selector of %s: %w", s.GetName(), err)
	}
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.GetName(), Namespace: s.GetNamespace(), UID: s.GetUID(),
			ResourceVersion: s.GetResourceVersion(), CreationTimestamp: s.GetCreationTimestamp(),
		},
		Status: autoscalingv1.ScaleStatus{Replicas: s.running, Selector: selector.String()},
	}
	if *s.replicas != nil {
		scale.Spec.Replicas = **s.replicas
	}
	return scale, nil
}
