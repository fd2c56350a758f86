package apiserver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/internal/tuning"
	"github.com/fairway-net/fairway/kube"
)

// administrator is a client as the admin kubeconfig makes it: with a
// certificate, and in protobuf.
func administrator(t testing.TB, s *Server) *kubernetes.Clientset {
	t.Helper()
	config, err := kube.Config(s.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// createServices creates n Services with node ports or without, from 32
// clients at a time.
func createServices(ctx context.Context, c kubernetes.Interface, prefix string, n int) error {
	var (
		next  atomic.Int64
		group sync.WaitGroup
		first atomic.Pointer[error]
	)
	for range 32 {
		group.Go(func() {
			for i := next.Add(1); i <= int64(n) && first.Load() == nil; i = next.Add(1) {
				_, err := c.CoreV1().Services("default").Create(ctx, &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", prefix, i)},
					Spec: corev1.ServiceSpec{
						Selector: map[string]string{"app": "web"},
						Ports:    []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "https", Port: 443}},
					},
				}, metav1.CreateOptions{})
				if err != nil {
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	group.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}

// BenchmarkServiceCreate measures creating Services beside those that are
// already there: it should not matter how many these are.
func BenchmarkServiceCreate(b *testing.B) {
	for _, existing := range []int{0, 30000} {
		b.Run(fmt.Sprintf("existing=%d", existing), func(b *testing.B) {
			end, err := tuning.TuneGC(1<<30, 100) // as the server has it
			if err != nil {
				b.Fatal(err)
			}
			defer end()
			c := administrator(b, start(b, testConfig(b)))
			if err := createServices(b.Context(), c, "old", existing); err != nil {
				b.Fatal(err)
			}
			before := cpuTime(b)
			b.ReportAllocs()
			b.ResetTimer()
			if err := createServices(b.Context(), c, "new", b.N); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

// cpuTime is what this process, server and clients together, has used: unlike
// the rate it doesn't depend on what else runs on the machine.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
