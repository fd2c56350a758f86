package collect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/endpoint/check"
)

// mostPods is how many Pods are read to find what a selector was probably meant to match.
const mostPods = 500

// ReadFor reads the objects that a question about one Service takes: in a cluster of very many, all
// would be a hundred megabytes. Where others may have a say (the Service isn't
// found, or has addresses or node ports that another one may claim), all are read.
func (s *Source) ReadFor(ctx context.Context, q explain.Question) (*explain.Objects, error) {
	if len(s.Files) > 0 {
		return s.readAPI(ctx)
	}
	o, err := s.readOf(ctx, q)
	return s.orInForce(ctx, o, err)
}

// readOf is the same without the agents.
func (s *Source) readOf(ctx context.Context, q explain.Question) (*explain.Objects, error) {
	client, err := s.reader()
	if err != nil {
		return nil, err
	}
	service, err := serviceOf(ctx, client, q.Target)
	if err != nil {
		return nil, err
	}
	if service == nil {
		return readAllOrAround(ctx, client, nil, q)
	}
	if mayBeShared(service) {
		return readAllOrAround(ctx, client, service, q)
	}
	return readAround(ctx, client, service, q.From)
}

// ReadAll reads all objects, or, for a user who may not, those of the Service that is asked about.
func (s *Source) ReadAll(ctx context.Context, q explain.Question) (*explain.Objects, error) {
	if len(s.Files) > 0 {
		return s.readAPI(ctx)
	}
	client, err := s.reader()
	if err != nil {
		return s.orInForce(ctx, nil, err)
	}
	o, err := readAllOrAround(ctx, client, nil, q)
	return s.orInForce(ctx, o, err)
}

// ReadEvery reads the objects of all Services, or, for a user who may not, of those of a
// namespace.
func (s *Source) ReadEvery(ctx context.Context, namespace string) (*explain.Objects, error) {
	o, err := s.readAPI(ctx)
	if !apierrors.IsForbidden(err) || namespace == "" {
		return s.orInForce(ctx, o, err)
	}
	client, clientErr := s.reader()
	if clientErr != nil {
		return nil, clientErr
	}
	o, inside := readObjects(ctx, client, namespace)
	if inside != nil {
		return s.orInForce(ctx, nil, err)
	}
	o.NoOthers = err.Error()
	return o, nil
}

// readAllOrAround does that. service is the one that is asked about, nil if that isn't known yet.
func readAllOrAround(ctx context.Context, client kubernetes.Interface, service *corev1.Service, q explain.Question) (*explain.Objects, error) {
	o, all := readObjects(ctx, client, metav1.NamespaceAll)
	if !apierrors.IsForbidden(all) {
		return o, all
	}
	if service == nil {
		var err error
		if service, err = serviceOf(ctx, client, q.Target); err != nil || service == nil {
			if err == nil && isAbsent(ctx, client, q.Target) {
				return &explain.Objects{NoOthers: all.Error(), NoPods: all.Error(), NoPolicies: all.Error()}, nil
			}
			return nil, errors.Join(all, err)
		}
	}
	o, err := readAround(ctx, client, service, q.From)
	if err != nil {
		return nil, errors.Join(all, err)
	}
	o.NoOthers, o.NoPolicies = all.Error(), all.Error()
	return o, nil
}

// serviceOf is the Service that a target is about; nil if it isn't told by its name or
// its cluster IP.
func serviceOf(ctx context.Context, client kubernetes.Interface, t explain.Target) (*corev1.Service, error) {
	if t.Addr.IsValid() {
		where := fields.OneTermEqualSelector("spec.clusterIP", t.Addr.String()).String()
		list, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: where})
		if err != nil || len(list.Items) != 1 {
			return nil, nil //nolint:nilerr // then all are read, which says what is wrong
		}
		return &list.Items[0], nil
	}
	s, err := client.CoreV1().Services(t.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil //nolint:nilnil // then all are read, which says what is near, or forbidden
	}
	if err != nil {
		return nil, fmt.Errorf("get Service %s/%s: %w", t.Namespace, t.Name, err)
	}
	return s, nil
}

// isAbsent reports whether the API says that there is no Service of a name.
func isAbsent(ctx context.Context, client kubernetes.Interface, t explain.Target) bool {
	if t.Name == "" {
		return false
	}
	_, err := client.CoreV1().Services(t.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// mayBeShared reports whether another Service may claim what this one has.
func mayBeShared(s *corev1.Service) bool {
	inner := append(slices.Clone(s.Spec.ClusterIPs), s.Spec.ClusterIP)
	return slices.ContainsFunc(explain.AddressesOf(s), func(a netip.Addr) bool { return !slices.Contains(inner, a.String()) }) ||
		slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 })
}

// readAround reads what belongs to a Service, the client, and the nodes.
func readAround(ctx context.Context, client kubernetes.Interface, s *corev1.Service, from explain.Source) (*explain.Objects, error) {
	o := &explain.Objects{Services: []*corev1.Service{s}, NoPolicies: "they have no say in explain"}
	of := labels.Set{discoveryv1.LabelServiceName: s.Name}.String()
	slices, err := client.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: of})
	switch {
	case apierrors.IsForbidden(err):
		o.NoSlices = err.Error()
	case err != nil:
		return nil, fmt.Errorf("list EndpointSlices: %w", err)
	default:
		o.Slices = pointers(slices.Items)
	}
	if s.Annotations[check.AnnotationCheck] != "" { // why endpoints aren't ready
		reports, err := client.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set{check.ReportOf: s.Name}.String()})
		if err == nil {
			o.Slices = append(o.Slices, pointers(reports.Items)...)
		}
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	if err == nil {
		o.Nodes = pointers(nodes.Items)
	} else {
		o.NoNodes = err.Error()
	}
	return o, readPods(ctx, client, o, s, from)
}

// readPods reads the Pods that the Service selects, or, if there are none, those that it was
// perhaps meant to, those that its slices name, and the client.
func readPods(ctx context.Context, client kubernetes.Interface, o *explain.Objects, s *corev1.Service, from explain.Source) error {
	which := metav1.ListOptions{LabelSelector: labels.Set(s.Spec.Selector).String()}
	for {
		if len(s.Spec.Selector) == 0 {
			break
		}
		list, err := client.CoreV1().Pods(s.Namespace).List(ctx, which)
		switch {
		case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
			o.NoPods = err.Error()
			return readPod(ctx, client, o, from.Kind == "pod", from.Namespace, from.Name)
		case err != nil:
			return fmt.Errorf("list Pods: %w", err)
		}
		o.Pods = append(o.Pods, pointers(list.Items)...)
		if len(o.Pods) > 0 || which.LabelSelector == "" {
			break
		}
		which = metav1.ListOptions{Limit: mostPods}
	}
	if err := readPod(ctx, client, o, from.Kind == "pod", from.Namespace, from.Name); err != nil {
		return err
	}
	named := 0
	for _, slice := range o.Slices {
		for _, e := range slice.Endpoints {
			if e.TargetRef == nil || e.TargetRef.Kind != "Pod" || o.Pod(s.Namespace, e.TargetRef.Name) != nil || named == mostNamed {
				continue
			}
			named++
			if err := readPod(ctx, client, o, true, s.Namespace, e.TargetRef.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// mostNamed is how many Pods are read that a slice names, and no selector matches.
const mostNamed = 10

// readPod reads one Pod, if it is wanted and not known yet. One that isn't there is none.
func readPod(ctx context.Context, client kubernetes.Interface, o *explain.Objects, wanted bool, namespace, name string) error {
	if !wanted || o.Pod(namespace, name) != nil {
		return nil
	}
	p, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		o.NoPods = err.Error()
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("get Pod %s/%s: %w", namespace, name, err)
	case err == nil:
		o.Pods = append(o.Pods, p)
	}
	return nil
}
