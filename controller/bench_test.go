//go:build !race

// The API server and etcd under the race detector take longer to build and to
// run than all other tests together; the same cases run on a fake API with it.

package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/controller"
	"github.com/fairway-net/fairway/test/wait"
)

// BenchmarkReadiness measures the time from a Pod's readiness being written to
// the EndpointSlice that says so being watched, among 1,000 Services.
func BenchmarkReadiness(b *testing.B) {
	for _, pods := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(pods, " pods"), func(b *testing.B) { benchmarkReadiness(b, 1000, pods) })
	}
}

func benchmarkReadiness(b *testing.B, services, pods int) {
	config := apiserver.DefaultConfig()
	config.DataDir = b.TempDir()
	config.Port = 0
	server, err := apiserver.Start(context.Background(), config)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- controller.Run(ctx, server.LoopbackConfig(), controller.Options{Logger: slog.New(slog.DiscardHandler)})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		if err := server.Close(); err != nil {
			b.Error(err)
		}
	}()
	loopback := server.LoopbackConfig()
	loopback.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(loopback)
	if err != nil {
		b.Fatal(err)
	}
	fill(b, client, services, pods)
	changes, err := client.DiscoveryV1().EndpointSlices("default").Watch(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=measured"})
	if err != nil {
		b.Fatal(err)
	}
	defer changes.Stop()
	is := corev1.ConditionFalse
	for b.Loop() {
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, is)
		if _, err := client.CoreV1().Pods("default").Patch(ctx, "measured-0", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			b.Fatal(err)
		}
		awaitReadiness(b, changes.ResultChan(), "measured-0", is == corev1.ConditionTrue)
		if is == corev1.ConditionTrue {
			is = corev1.ConditionFalse
		} else {
			is = corev1.ConditionTrue
		}
	}
}

// awaitReadiness returns when a slice says of the Pod what it should.
func awaitReadiness(b *testing.B, changes <-chan watch.Event, pod string, ready bool) {
	for event := range changes {
		slice, ok := event.Object.(*discoveryv1.EndpointSlice)
		if !ok {
			b.Fatalf("watch says %v", event.Object)
		}
		for _, e := range slice.Endpoints {
			if e.TargetRef.Name == pod && *e.Conditions.Ready == ready {
				return
			}
		}
	}
	b.Fatal("watch ended")
}

// fill makes Services that select nothing, and the measured one with its Pods,
// and waits for their slices.
func fill(b *testing.B, client kubernetes.Interface, services, pods int) {
	r := &benchRig{B: b, client: client}
	var group errgroup.Group
	group.SetLimit(32)
	group.Go(func() error { return r.node("n1") })
	group.Go(func() error { return r.service("measured") })
	for i := range services {
		group.Go(func() error { return r.service(fmt.Sprint("idle-", i)) })
	}
	for i := range pods {
		group.Go(func() error { return r.pod(fmt.Sprint("measured-", i), i) })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	r.await(services+1, pods)
}

type benchRig struct {
	*testing.B
	client kubernetes.Interface
}

func (r *benchRig) node(name string) error {
	_, err := r.client.CoreV1().Nodes().Create(context.Background(), node(name, "z1"), metav1.CreateOptions{})
	return err
}

func (r *benchRig) service(name string) error {
	_, err := r.client.CoreV1().Services("default").Create(context.Background(), service(name, func(s *corev1.Service) {
		s.Spec.Selector = map[string]string{"app": name}
	}), metav1.CreateOptions{})
	return err
}

func (r *benchRig) pod(name string, i int) error {
	p := pod(name, "n1", fmt.Sprintf("10.1.%d.%d", i/256, i%256), func(p *corev1.Pod) { p.Labels["app"] = "measured" })
	created, err := r.client.CoreV1().Pods("default").Create(context.Background(), p, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	created.Status = p.Status
	_, err = r.client.CoreV1().Pods("default").UpdateStatus(context.Background(), created, metav1.UpdateOptions{})
	return err
}

// await waits until every Service has its Endpoints and the measured one all endpoints.
func (r *benchRig) await(services, endpoints int) {
	for late := range wait.Tries(time.Hour) {
		all, err := r.client.CoreV1().Endpoints("default").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			r.Fatal(err)
		}
		measured, err := r.client.DiscoveryV1().EndpointSlices("default").List(context.Background(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=measured"})
		if err != nil {
			r.Fatal(err)
		}
		n := 0
		for _, slice := range measured.Items {
			n += len(slice.Endpoints)
		}
		if len(all.Items) >= services && n == endpoints {
			return
		}
		if late {
			r.Fatalf("%d Endpoints, and %d endpoints of the measured Service", len(all.Items), n)
		}
	}
}
