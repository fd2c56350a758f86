package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairway-net/fairway/controller"
)

// TestFirstThingsFirst: of what is written about new Services, slices come first, which packets
// wait for.
func TestFirstThingsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		giveIdentity(client)
		r := &rig{T: t, client: client, ns: "default"}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- controller.RunClients(ctx, client, nil, controller.Options{Disable: fakeless(), Logger: slog.New(slog.DiscardHandler)})
		}()
		r.createNode(node("n1", "z1"))
		r.createPod(pod("a", "n1", "10.0.0.1"))
		time.Sleep(time.Minute) // controllers work
		const services = 20
		client.ClearActions()
		for i := range services {
			r.createService(service(fmt.Sprintf("web-%d", i), func(s *corev1.Service) {
				s.Spec.ClusterIP = fmt.Sprintf("10.96.3.%d", i+1)
				s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
			}))
		}
		made := func() map[string]int {
			counts := map[string]int{}
			for _, action := range client.Actions() {
				if action.GetVerb() == "create" {
					counts[action.GetResource().Resource]++
				}
			}
			return counts
		}
		synctest.Wait()
		if m := made(); m["endpointslices"] != services || m["endpoints"] != 0 || m["ipaddresses"] != 0 {
			t.Errorf("at once %v are made", m)
		}
		time.Sleep(time.Minute)
		if m := made(); m["endpoints"] != services || m["ipaddresses"] != services {
			t.Errorf("in the end %v are made", m)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
