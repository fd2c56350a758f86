//go:build !race

package controller_test

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// testQuota: Services, node ports and load balancers are limited, also when many ask at
// once and when a Service changes its type; what was deleted makes room; what isn't
// counted isn't in the status, and an Event names it.
func testQuota(r *rig) {
	ctx, services := context.Background(), r.client.CoreV1().Services(r.ns)
	hard := corev1.ResourceList{
		"services": resource.MustParse("8"), "services.nodeports": resource.MustParse("3"), "services.loadbalancers": resource.MustParse("0"),
		"count/leases.coordination.k8s.io": resource.MustParse("5"), "count/nodes": resource.MustParse("1"), "requests.cpu": resource.MustParse("1"), "count/unicorns.example.com": resource.MustParse("1"),
	}
	r.do(func() (metav1.Object, error) {
		return r.client.CoreV1().ResourceQuotas(r.ns).Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	})
	status := func(want map[corev1.ResourceName]int64) {
		r.Helper()
		r.eventually(fmt.Sprintf("the quota counts %v", want), func(ctx context.Context) error {
			q, err := r.client.CoreV1().ResourceQuotas(r.ns).Get(ctx, "q", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if len(q.Status.Hard) != 4 || len(q.Status.Used) != 4 {
				return fmt.Errorf("status %v", q.Status)
			}
			for name, n := range want {
				if used := q.Status.Used[name]; used.Value() != n {
					return fmt.Errorf("%s: %d are in use, want %d", name, used.Value(), n)
				}
			}
			return nil
		})
	}
	status(map[corev1.ResourceName]int64{"services": 0, "services.nodeports": 0, "count/leases.coordination.k8s.io": 0})
	r.expectEvent("q", "NotCounted", "count/nodes, count/unicorns.example.com, requests.cpu")

	nodePort := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}}}
	}
	if _, err := services.Create(ctx, nodePort("dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		r.Error(err)
	}
	var (
		all     sync.WaitGroup
		mu      sync.Mutex
		created []string
	)
	for i := range 10 {
		all.Go(func() {
			s, err := services.Create(ctx, nodePort(fmt.Sprintf("np-%d", i)), metav1.CreateOptions{})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				created = append(created, s.Name)
			} else if !apierrors.IsForbidden(err) && !apierrors.IsConflict(err) {
				r.Error(err)
			}
		})
	}
	all.Wait()
	for i := range 3 { // conflicts may have left room
		if len(created) < 3 {
			if s, err := services.Create(ctx, nodePort(fmt.Sprintf("more-%d", i)), metav1.CreateOptions{}); err == nil {
				created = append(created, s.Name)
			}
		}
	}
	if len(created) != 3 {
		r.Fatalf("%v were created, of which a quota lets 3", created)
	}
	refused := func(what string, err error) {
		r.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: q") {
			r.Errorf("%s: %v, want a refusal by the quota", what, err)
		}
	}
	_, err := services.Create(ctx, nodePort("fourth"), metav1.CreateOptions{})
	refused("a fourth node port", err)
	plain := nodePort("plain")
	plain.Spec.Type = corev1.ServiceTypeClusterIP
	r.do(func() (metav1.Object, error) { return services.Create(ctx, plain, metav1.CreateOptions{}) })
	_, err = services.Patch(ctx, "plain", types.MergePatchType, []byte(`{"spec":{"type":"NodePort"}}`), metav1.PatchOptions{})
	refused("a Service that becomes one with a node port", err)
	_, err = services.Patch(ctx, "plain", types.MergePatchType, []byte(`{"spec":{"type":"LoadBalancer"}}`), metav1.PatchOptions{})
	refused("a Service that becomes a load balancer", err)
	status(map[corev1.ResourceName]int64{"services": 4, "services.nodeports": 3})

	if err := services.Delete(ctx, created[0], metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	r.eventually("there is room again", func(ctx context.Context) error {
		_, err := services.Patch(ctx, "plain", types.MergePatchType, []byte(`{"spec":{"type":"NodePort"}}`), metav1.PatchOptions{})
		return err
	})
}

// testNothingActs: an Event says of objects on which nothing acts that nothing does.
func testNothingActs(r *rig) {
	ctx := context.Background()
	r.do(func() (metav1.Object, error) {
		return r.client.CoreV1().LimitRanges(r.ns).Create(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits"}}, metav1.CreateOptions{})
	})
	r.do(func() (metav1.Object, error) {
		return r.client.NetworkingV1().NetworkPolicies(r.ns).Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy"}}, metav1.CreateOptions{})
	})
	if _, err := r.client.CoreV1().LimitRanges(r.ns).Create(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "dry"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		r.Error(err)
	}
	r.expectEvent("limits", "NothingActs", "neither defaults nor limits anything")
	r.expectEvent("policy", "NothingActs", "all traffic stays allowed")
	events, err := r.client.CoreV1().Events(r.ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=dry"})
	if err != nil || len(events.Items) != 0 {
		r.Errorf("of an object that was only tried: %v, %v", events.Items, err)
	}
}
