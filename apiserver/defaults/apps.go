package defaults

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Deployment fills in a Deployment's defaults.
func Deployment(d *appsv1.Deployment) {
	spec := &d.Spec
	setPointer(&spec.Replicas, 1)
	setPointer(&spec.RevisionHistoryLimit, 10)
	setPointer(&spec.ProgressDeadlineSeconds, 600)
	setDefault(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		setPointer(&spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		setPointer(&spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		setPointer(&spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	PodSpec(&spec.Template.Spec)
}

// ReplicaSet fills in a ReplicaSet's defaults.
func ReplicaSet(r *appsv1.ReplicaSet) {
	setPointer(&r.Spec.Replicas, 1)
	PodSpec(&r.Spec.Template.Spec)
}
