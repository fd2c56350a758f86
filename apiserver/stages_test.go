package apiserver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkWriteStages takes one writer's time, in turns: for the disk alone,
// for etcd alone, for a request that writes nothing, for a create that stops
// before etcd, and for whole creates. What a write costs at least is the first.
func BenchmarkWriteStages(b *testing.B) {
	config := testConfig(b)
	s := start(b, config)
	c := administrator(b, s)
	ctx := b.Context()
	file, err := os.Create(filepath.Join(config.DataDir, "disk"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if err := unix.Fallocate(int(file.Fd()), 0, 0, 64<<20); err != nil {
		b.Fatal(err)
	}
	value := make([]byte, 1200)
	stages := []struct {
		name string
		do   func(i int) error
	}{
		{"disk", func(i int) error {
			if _, err := file.WriteAt(value, int64(i*len(value))); err != nil {
				return err
			}
			return unix.Fdatasync(int(file.Fd()))
		}},
		{"etcd", func(i int) error {
			_, err := s.backend.Client.Put(ctx, fmt.Sprintf("/stage/%d", i), string(value))
			return err
		}},
		{"request", func(int) error {
			return c.CoreV1().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
		}},
		{"dry-run", func(i int) error {
			_, err := c.CoreV1().Services("default").Create(ctx, stageService(i), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}},
		{"service", func(i int) error {
			_, err := c.CoreV1().Services("default").Create(ctx, stageService(i), metav1.CreateOptions{})
			return err
		}},
		{"slice", func(i int) error {
			_, err := c.DiscoveryV1().EndpointSlices("default").Create(ctx, stageSlice(i), metav1.CreateOptions{})
			return err
		}},
	}
	took := make([][]time.Duration, len(stages))
	b.ResetTimer()
	for i := range b.N {
		for n, stage := range stages {
			began := time.Now()
			if err := stage.do(i); err != nil {
				b.Fatal(stage.name, err)
			}
			took[n] = append(took[n], time.Since(began))
			time.Sleep(5 * time.Millisecond) // as those have who write now and then
		}
	}
	for n, stage := range stages {
		slices.Sort(took[n])
		b.ReportMetric(float64(took[n][len(took[n])/2].Microseconds()), stage.name+"-µs")
		b.ReportMetric(float64(took[n][0].Microseconds()), stage.name+"-best-µs")
	}
}

func stageService(i int) *corev1.Service {
	name := fmt.Sprintf("stage-%d", i)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "main", Port: 80}}},
	}
}

func stageSlice(i int) *discoveryv1.EndpointSlice {
	service, port, number, protocol := fmt.Sprintf("stage-%d", i), "main", int32(80), corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: service + "-1", Labels: map[string]string{
			discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "bench.fairway.dev",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.1"}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &port, Protocol: &protocol, Port: &number}},
	}
}
