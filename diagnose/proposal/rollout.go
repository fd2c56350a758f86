package proposal

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/utils/ptr"
)

// workload is what makes pods.
type workload struct {
	owner    string // "Deployment web"
	replicas int
	selector *metav1.LabelSelector
	template corev1.PodTemplateSpec
}

// workloadOf is the workload that an object is; false if it is none. nodes is how many pods a
// DaemonSet makes.
func workloadOf(o *object, nodes int) (w workload, is bool) {
	made, err := o.as()
	if err != nil {
		return w, false
	}
	count := func(n *int32) int { return int(ptr.Deref(n, 1)) }
	switch x := made.(type) {
	case *appsv1.Deployment:
		return workload{"Deployment " + x.Name, count(x.Spec.Replicas), x.Spec.Selector, x.Spec.Template}, true
	case *appsv1.StatefulSet:
		return workload{"StatefulSet " + x.Name, count(x.Spec.Replicas), x.Spec.Selector, x.Spec.Template}, true
	case *appsv1.DaemonSet:
		return workload{"DaemonSet " + x.Name, max(nodes, 1), x.Spec.Selector, x.Spec.Template}, true
	}
	return w, false
}

// mostPods is how many pods of one workload are played.
const mostPods = 100

// rollOut plays what controllers do after the change: pods of workloads, and endpoints of the
// Services that select them.
func (j *joiner) rollOut() {
	moved := map[types.NamespacedName]bool{} // Services whose endpoints are others
	for _, p := range j.changed {
		switch kindOf(p.is.raw) {
		case "Service":
			if j.selectsOther(p) {
				moved[objectName(p.is)] = true
			}
		case "Pod":
			j.markSelecting(moved, p.is.raw.GetNamespace(), p.is.raw.GetLabels())
			if p.was != nil {
				j.markSelecting(moved, p.is.raw.GetNamespace(), p.was.raw.GetLabels())
			}
		default:
			j.rollOutOne(moved, p)
		}
	}
	if !j.before.has("Pod") && len(moved) > 0 {
		j.NotChecked = append(j.NotChecked, "which endpoints there are after the change: pods can't be listed")
		return
	}
	pods := map[string][]*corev1.Pod{} // by namespace
	for _, o := range j.after["Pod"] {
		if made, err := o.as(); err == nil {
			pod := made.(*corev1.Pod)
			pods[pod.Namespace] = append(pods[pod.Namespace], pod)
		}
	}
	kept := map[types.NamespacedName][]types.NamespacedName{} // slices that the controller keeps, by Service
	for name, o := range j.before["EndpointSlice"] {
		if l := o.raw.GetLabels(); l[discoveryv1.LabelManagedBy] == sliceController {
			of := types.NamespacedName{Namespace: name.Namespace, Name: l[discoveryv1.LabelServiceName]}
			kept[of] = append(kept[of], name)
		}
	}
	for name := range moved {
		j.slice(name, pods[name.Namespace], kept[name])
	}
}

func objectName(o *object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.raw.GetNamespace(), Name: o.raw.GetName()}
}

// selectsOther reports whether a Service's endpoints follow from something that changed.
func (j *joiner) selectsOther(p pair) bool {
	made, err := p.is.as()
	if err != nil {
		return false
	}
	is := made.(*corev1.Service)
	if len(is.Spec.Selector) == 0 || is.Spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	if p.was == nil {
		return true
	}
	if made, err = p.was.as(); err != nil {
		return false
	}
	was := made.(*corev1.Service)
	return !maps.Equal(was.Spec.Selector, is.Spec.Selector) || !equality.Semantic.DeepEqual(was.Spec.Ports, is.Spec.Ports) ||
		!slices.Equal(was.Spec.IPFamilies, is.Spec.IPFamilies)
}

// markSelecting marks the Services that select pods with labels.
func (j *joiner) markSelecting(moved map[types.NamespacedName]bool, namespace string, pod map[string]string) {
	for name, o := range j.after["Service"] {
		if name.Namespace != namespace {
			continue
		}
		made, err := o.as()
		if s, is := made.(*corev1.Service); err == nil && is && len(s.Spec.Selector) > 0 && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod)) {
			moved[name] = true
		}
	}
}

// rollOutOne replaces the pods of a workload that changed. Pods of a template that stays the same
// stay, as many as there are to be.
func (j *joiner) rollOutOne(moved map[types.NamespacedName]bool, p pair) {
	is, makesPods := workloadOf(p.is, len(j.before["Node"]))
	if !makesPods {
		return
	}
	namespace := p.is.raw.GetNamespace()
	var have []types.NamespacedName
	same := false
	if p.was != nil {
		was, _ := workloadOf(p.was, len(j.before["Node"]))
		same = equality.Semantic.DeepEqual(was.template, is.template)
		selector, err := metav1.LabelSelectorAsSelector(was.selector)
		for name, o := range j.before["Pod"] {
			if err == nil && name.Namespace == namespace && selector.Matches(labels.Set(o.raw.GetLabels())) {
				have = append(have, name)
			}
		}
		slices.SortFunc(have, func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) })
		if same && len(have) == is.replicas {
			return
		}
		j.markSelecting(moved, namespace, was.template.Labels)
	}
	j.markSelecting(moved, namespace, is.template.Labels)
	keep := 0
	if same {
		keep = min(len(have), is.replicas)
	}
	for _, name := range have[keep:] {
		delete(j.after["Pod"], name)
	}
	for i := keep; i < min(is.replicas, mostPods); i++ {
		pod := j.podOf(is, namespace, i+1)
		j.after.set("Pod", types.NamespacedName{Namespace: namespace, Name: pod.Name}, &object{made: pod})
	}
}

// podOf is a pod that a workload will make.
func (j *joiner) podOf(w workload, namespace string, number int) *corev1.Pod {
	name := fmt.Sprintf("new pod %d of %s", number, w.owner)
	pod := &corev1.Pod{ObjectMeta: *w.template.ObjectMeta.DeepCopy(), Spec: w.template.Spec}
	pod.Namespace, pod.Name = namespace, name
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, ipv6 := range []bool{false, true} {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: j.standIn(ipv6, name).String()})
	}
	pod.Status.PodIP = pod.Status.PodIPs[0].IP
	return pod
}

// sliceController keeps the slices of Services with a selector.
const sliceController = "endpointslice-controller.k8s.io"

// slice makes the EndpointSlices of a Service anew, as the controller will, from the pods of its
// namespace. kept are those that it has.
func (j *joiner) slice(service types.NamespacedName, pods []*corev1.Pod, kept []types.NamespacedName) {
	made, err := j.after["Service"][service].as()
	if err != nil {
		return
	}
	s := made.(*corev1.Service)
	known := map[string]discoveryv1.Endpoint{}
	for _, name := range kept {
		if made, err := j.before["EndpointSlice"][name].as(); err == nil {
			for _, e := range made.(*discoveryv1.EndpointSlice).Endpoints {
				for _, a := range e.Addresses {
					known[a] = e
				}
			}
		}
		delete(j.after["EndpointSlice"], name)
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	grouped := map[string]*discoveryv1.EndpointSlice{}
	for _, pod := range pods {
		done := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if done || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			addEndpoint(grouped, s, pod, ip.IP, known)
		}
	}
	for _, slice := range grouped {
		j.after.set("EndpointSlice", types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name}, &object{made: slice})
	}
}

// addEndpoint adds a pod's address to the slice of its family and ports.
func addEndpoint(grouped map[string]*discoveryv1.EndpointSlice, s *corev1.Service, pod *corev1.Pod, ip string, known map[string]discoveryv1.Endpoint) {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return
	}
	family := corev1.IPv4Protocol
	if a.Is6() {
		family = corev1.IPv6Protocol
	}
	if len(s.Spec.IPFamilies) > 0 && !slices.Contains(s.Spec.IPFamilies, family) {
		return
	}
	ports := portsOf(s, pod)
	key := string(family)
	for _, p := range ports {
		key += "-" + strconv.Itoa(int(*p.Port))
	}
	slice := grouped[key]
	if slice == nil {
		slice = &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressType(family), Ports: ports}
		slice.Namespace, slice.Name = s.Namespace, s.Name+"-after-"+strings.ToLower(key)
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: s.Name, discoveryv1.LabelManagedBy: sliceController}
		if s.Spec.ClusterIP == corev1.ClusterIPNone {
			slice.Labels[corev1.IsHeadlessService] = ""
		}
		grouped[key] = slice
	}
	e, listed := known[ip]
	if !listed {
		ready := endpointsliceutil.IsPodReady(pod) && pod.DeletionTimestamp == nil
		e = discoveryv1.Endpoint{Addresses: []string{ip}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}}
		e.Conditions.Ready = ptr.To(ready || s.Spec.PublishNotReadyAddresses)
		if pod.Spec.NodeName != "" {
			e.NodeName = ptr.To(pod.Spec.NodeName)
		}
	}
	slice.Endpoints = append(slice.Endpoints, e)
}

// portsOf are the ports of a Service at a pod. A name that no container has is left out.
func portsOf(s *corev1.Service, pod *corev1.Pod) []discoveryv1.EndpointPort {
	var list []discoveryv1.EndpointPort
	for _, p := range s.Spec.Ports {
		p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == (intstr.IntOrString{}) {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
		if number, err := endpointslice.FindPort(pod, &p); err == nil {
			list = append(list, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Port: ptr.To(int32(number)), Protocol: ptr.To(p.Protocol)})
		}
	}
	return list
}
