// Package defaults fills in what a manifest leaves out, as the Kubernetes API
// reference documents it field by field. It only ever looks at one object:
// defaults that depend on the cluster (addresses, IP families) belong to the
// registry.
package defaults

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Register adds the defaulting functions to a scheme.
func Register(s *runtime.Scheme) {
	register(s, &corev1.Service{}, &corev1.ServiceList{}, Service, func(l *corev1.ServiceList) []corev1.Service { return l.Items })
	register(s, &corev1.Pod{}, &corev1.PodList{}, Pod, func(l *corev1.PodList) []corev1.Pod { return l.Items })
	register(s, &corev1.Namespace{}, &corev1.NamespaceList{}, Namespace, func(l *corev1.NamespaceList) []corev1.Namespace { return l.Items })
	register(s, &corev1.Node{}, &corev1.NodeList{}, Node, func(l *corev1.NodeList) []corev1.Node { return l.Items })
	register(s, &corev1.Secret{}, &corev1.SecretList{}, Secret, func(l *corev1.SecretList) []corev1.Secret { return l.Items })
	register(s, &corev1.Endpoints{}, &corev1.EndpointsList{}, Endpoints, func(l *corev1.EndpointsList) []corev1.Endpoints { return l.Items })
	register(s, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}, EndpointSlice, func(l *discoveryv1.EndpointSliceList) []discoveryv1.EndpointSlice { return l.Items })
	register(s, &appsv1.Deployment{}, &appsv1.DeploymentList{}, Deployment, func(l *appsv1.DeploymentList) []appsv1.Deployment { return l.Items })
	register(s, &appsv1.ReplicaSet{}, &appsv1.ReplicaSetList{}, ReplicaSet, func(l *appsv1.ReplicaSetList) []appsv1.ReplicaSet { return l.Items })
	register(s, &rbacv1.RoleBinding{}, &rbacv1.RoleBindingList{}, RoleBinding, func(l *rbacv1.RoleBindingList) []rbacv1.RoleBinding { return l.Items })
	register(s, &rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRoleBindingList{}, ClusterRoleBinding, func(l *rbacv1.ClusterRoleBindingList) []rbacv1.ClusterRoleBinding { return l.Items })
	register(s, &appsv1.StatefulSet{}, &appsv1.StatefulSetList{}, StatefulSet, func(l *appsv1.StatefulSetList) []appsv1.StatefulSet { return l.Items })
	register(s, &appsv1.DaemonSet{}, &appsv1.DaemonSetList{}, DaemonSet, func(l *appsv1.DaemonSetList) []appsv1.DaemonSet { return l.Items })
	register(s, &networkingv1.NetworkPolicy{}, &networkingv1.NetworkPolicyList{}, NetworkPolicy, func(l *networkingv1.NetworkPolicyList) []networkingv1.NetworkPolicy { return l.Items })
	register(s, &flowcontrolv1.FlowSchema{}, &flowcontrolv1.FlowSchemaList{}, FlowSchema, func(l *flowcontrolv1.FlowSchemaList) []flowcontrolv1.FlowSchema { return l.Items })
	register(s, &flowcontrolv1.PriorityLevelConfiguration{}, &flowcontrolv1.PriorityLevelConfigurationList{}, PriorityLevelConfiguration, func(l *flowcontrolv1.PriorityLevelConfigurationList) []flowcontrolv1.PriorityLevelConfiguration {
		return l.Items
	})
	register(s, &batchv1.Job{}, &batchv1.JobList{}, Job, func(l *batchv1.JobList) []batchv1.Job { return l.Items })
	register(s, &batchv1.CronJob{}, &batchv1.CronJobList{}, CronJob, func(l *batchv1.CronJobList) []batchv1.CronJob { return l.Items })
	register(s, &corev1.ReplicationController{}, &corev1.ReplicationControllerList{}, ReplicationController, func(l *corev1.ReplicationControllerList) []corev1.ReplicationController { return l.Items })
	register(s, &corev1.PodTemplate{}, &corev1.PodTemplateList{}, PodTemplate, func(l *corev1.PodTemplateList) []corev1.PodTemplate { return l.Items })
	register(s, &schedulingv1.PriorityClass{}, &schedulingv1.PriorityClassList{}, PriorityClass, func(l *schedulingv1.PriorityClassList) []schedulingv1.PriorityClass { return l.Items })
	register(s, &networkingv1.IngressClass{}, &networkingv1.IngressClassList{}, IngressClass, func(l *networkingv1.IngressClassList) []networkingv1.IngressClass { return l.Items })
	register(s, &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyList{}, ValidatingAdmissionPolicy, func(l *admissionregistrationv1.ValidatingAdmissionPolicyList) []admissionregistrationv1.ValidatingAdmissionPolicy {
		return l.Items
	})
	register(s, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}, ValidatingAdmissionPolicyBinding, func(l *admissionregistrationv1.ValidatingAdmissionPolicyBindingList) []admissionregistrationv1.ValidatingAdmissionPolicyBinding {
		return l.Items
	})
	register(s, &admissionregistrationv1.MutatingAdmissionPolicy{}, &admissionregistrationv1.MutatingAdmissionPolicyList{}, MutatingAdmissionPolicy, func(l *admissionregistrationv1.MutatingAdmissionPolicyList) []admissionregistrationv1.MutatingAdmissionPolicy {
		return l.Items
	})
	register(s, &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, &admissionregistrationv1.MutatingAdmissionPolicyBindingList{}, MutatingAdmissionPolicyBinding, func(l *admissionregistrationv1.MutatingAdmissionPolicyBindingList) []admissionregistrationv1.MutatingAdmissionPolicyBinding {
		return l.Items
	})
	register(s, &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfigurationList{}, ValidatingWebhookConfiguration, func(l *admissionregistrationv1.ValidatingWebhookConfigurationList) []admissionregistrationv1.ValidatingWebhookConfiguration {
		return l.Items
	})
	register(s, &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfigurationList{}, MutatingWebhookConfiguration, func(l *admissionregistrationv1.MutatingWebhookConfigurationList) []admissionregistrationv1.MutatingWebhookConfiguration {
		return l.Items
	})
	s.AddTypeDefaultingFunc(&authenticationv1.TokenRequest{}, func(o any) { TokenRequest(o.(*authenticationv1.TokenRequest)) })
	s.AddTypeDefaultingFunc(&autoscalingv1.Scale{}, func(any) {})
}

// register adds the defaulting of a kind and of its list.
func register[T any, O interface {
	*T
	runtime.Object
}, L runtime.Object](s *runtime.Scheme, obj O, list L, def func(*T), items func(L) []T) {
	s.AddTypeDefaultingFunc(obj, func(o any) { def(o.(O)) })
	s.AddTypeDefaultingFunc(list, func(o any) {
		all := items(o.(L))
		for i := range all {
			def(&all[i])
		}
	})
}

// Namespace sets the name label (KEP-2161) by which network policies and
// selectors find a namespace.
func Namespace(ns *corev1.Namespace) {
	if ns.Name == "" {
		return
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

// Node makes all of a node's capacity allocatable unless it says otherwise.
func Node(n *corev1.Node) {
	if n.Status.Allocatable != nil || n.Status.Capacity == nil {
		return
	}
	n.Status.Allocatable = make(corev1.ResourceList, len(n.Status.Capacity))
	for name, quantity := range n.Status.Capacity {
		n.Status.Allocatable[name] = quantity.DeepCopy()
	}
}

// Secret makes a Secret without a type an opaque one.
func Secret(s *corev1.Secret) { setDefault(&s.Type, corev1.SecretTypeOpaque) }

// Endpoints makes ports without a protocol TCP.
func Endpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			setDefault(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

// EndpointSlice gives ports their empty name and TCP.
func EndpointSlice(e *discoveryv1.EndpointSlice) {
	for i := range e.Ports {
		setPointer(&e.Ports[i].Name, "")
		setPointer(&e.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
