package registry

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/apiserver/quota"
	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/upstream"
)

// The kinds of this file are those that manifests of others contain and on which
// nothing acts here, but for ResourceQuotas, by which admission refuses.

func statefulSets() *kind[appsv1.StatefulSet, *appsv1.StatefulSet] {
	return &kind[appsv1.StatefulSet, *appsv1.StatefulSet]{
		version: appsv1.SchemeGroupVersion, resource: "statefulsets", singular: "statefulset",
		shortNames: []string{"sts"}, categories: []string{"all"},
		list:  func() runtime.Object { return &appsv1.StatefulSetList{} },
		rules: upstream.StatefulSets,
		idle:  noActor("StatefulSet", "and no pod of it is made; the lab runs Deployments"),
		table: tables.StatefulSets(),
	}
}

func daemonSets() *kind[appsv1.DaemonSet, *appsv1.DaemonSet] {
	return &kind[appsv1.DaemonSet, *appsv1.DaemonSet]{
		version: appsv1.SchemeGroupVersion, resource: "daemonsets", singular: "daemonset",
		shortNames: []string{"ds"}, categories: []string{"all"},
		list:  func() runtime.Object { return &appsv1.DaemonSetList{} },
		rules: upstream.DaemonSets,
		idle:  noActor("DaemonSet", "and no pod of it is made; the lab runs Deployments"),
		table: tables.DaemonSets(),
	}
}

func networkPolicies() *kind[networkingv1.NetworkPolicy, *networkingv1.NetworkPolicy] {
	return &kind[networkingv1.NetworkPolicy, *networkingv1.NetworkPolicy]{
		version: networkingv1.SchemeGroupVersion, resource: "networkpolicies", singular: "networkpolicy",
		shortNames: []string{"netpol"},
		list:       func() runtime.Object { return &networkingv1.NetworkPolicyList{} },
		rules:      upstream.NetworkPolicies,
		idle:       noActor("NetworkPolicy", "and all traffic stays allowed. Where Services are concerned, spec.loadBalancerSourceRanges is enforced"),
		table:      tables.NetworkPolicies(),
	}
}

func limitRanges() *kind[corev1.LimitRange, *corev1.LimitRange] {
	return &kind[corev1.LimitRange, *corev1.LimitRange]{
		version: corev1.SchemeGroupVersion, resource: "limitranges", singular: "limitrange",
		shortNames: []string{"limits"},
		list:       func() runtime.Object { return &corev1.LimitRangeList{} },
		rules:      upstream.LimitRanges,
		idle:       noActor("LimitRange", "and neither defaults nor limits anything"),
		table:      tables.LimitRanges(),
	}
}

func resourceQuotas() *kind[corev1.ResourceQuota, *corev1.ResourceQuota] {
	return &kind[corev1.ResourceQuota, *corev1.ResourceQuota]{
		version: corev1.SchemeGroupVersion, resource: "resourcequotas", singular: "resourcequota",
		shortNames:     []string{"quota"},
		list:           func() runtime.Object { return &corev1.ResourceQuotaList{} },
		rules:          upstream.ResourceQuotas,
		warnings:       quota.Warnings,
		returnsDeleted: true,
		table:          tables.ResourceQuotas(),
	}
}

func priorityClasses() *kind[schedulingv1.PriorityClass, *schedulingv1.PriorityClass] {
	return &kind[schedulingv1.PriorityClass, *schedulingv1.PriorityClass]{
		version: schedulingv1.SchemeGroupVersion, resource: "priorityclasses", singular: "priorityclass",
		shortNames: []string{"pc"},
		list:       func() runtime.Object { return &schedulingv1.PriorityClassList{} },
		rules:      upstream.PriorityClasses,
		idle:       noActor("PriorityClass", "and no pod goes before another"),
		table:      tables.PriorityClasses(),
	}
}
