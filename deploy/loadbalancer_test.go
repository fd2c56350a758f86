package deploy_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/controller"
	"github.com/fairway-net/fairway/controller/addresses"
)

// TestLoadBalancerManifests: with the component, agents announce, with rights in
// MetalLB's namespace only.
func TestLoadBalancerManifests(t *testing.T) {
	objects := build(t, "testdata/loadbalancer")
	agent := find[appsv1.DaemonSet](objects, "fairway")
	if agent == nil || !slices.Contains(agent.Spec.Template.Spec.Containers[0].Args, "--announce") {
		t.Fatal("no agent announces")
	}
	account := find[corev1.ServiceAccount](objects, "fairway")
	role, binding := find[rbacv1.Role](objects, "fairway:announce"), find[rbacv1.RoleBinding](objects, "fairway:announce")
	if role == nil || binding == nil {
		t.Fatal("no Role, or nobody has it")
	}
	if role.Namespace != "metallb-system" || binding.Namespace != role.Namespace || binding.RoleRef.Name != role.Name {
		t.Errorf("role in %s, bound in %s", role.Namespace, binding.Namespace)
	}
	subject := rbacv1.Subject{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}
	if !slices.Equal(binding.Subjects, []rbacv1.Subject{subject}) {
		t.Errorf("bound are %v, want %v", binding.Subjects, subject)
	}
}

// TestAnnouncingPods: agents that announce may load the program that answers for addresses while none of
// them runs, and find it again.
func TestAnnouncingPods(t *testing.T) {
	agent := find[appsv1.DaemonSet](build(t, "testdata/loadbalancer"), "fairway").Spec.Template.Spec
	c := agent.Containers[0]
	for _, capability := range []corev1.Capability{"NET_ADMIN", "NET_RAW", "BPF", "PERFMON"} {
		if !slices.Contains(c.SecurityContext.Capabilities.Add, capability) {
			t.Errorf("agents that announce lack CAP_%s", capability)
		}
	}
	if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/sys/fs/bpf" }) {
		t.Error("agents that announce keep no programs: /sys/fs/bpf isn't the node's")
	}
}

// testAddressRights: with the rights of the manifests, the address controller makes a pool of its range
// and gives a Service an address of it. It asks for nothing more.
func testAddressRights(t *testing.T, api *rest.Config) {
	ctx := t.Context()
	core := kubernetes.NewForConfigOrDie(api)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "metallb-system"}}
	if _, err := core.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	objects := build(t, "addresses")
	create(ctx, t, core, slices.DeleteFunc(slices.Clone(objects), func(o runtime.Object) bool {
		_, workload := o.(*appsv1.Deployment)
		return workload
	}))
	pod := find[appsv1.Deployment](objects, "fairway-addresses").Spec.Template.Spec
	if s := pod.Containers[0].SecurityContext; *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !*pod.SecurityContext.RunAsNonRoot {
		t.Errorf("the controller has %v", s)
	}
	config, rights := as(api, "kube-system:"+pod.ServiceAccountName)
	running, stop := context.WithCancel(ctx)
	var threads sync.WaitGroup
	threads.Go(func() {
		err := controller.RunAddresses(running, config, controller.Options{
			Lease:     &controller.Lease{Namespace: "metallb-system", Name: "fairway-addresses", Identity: "test"},
			Logger:    slog.New(slog.DiscardHandler),
			Addresses: addresses.Options{Namespace: "metallb-system", Ranges: []string{"192.0.2.0/28"}},
		})
		if err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); threads.Wait() })
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if _, err := core.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	watch, err := core.CoreV1().Services("default").Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: "web"}))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for deadline := time.After(time.Minute); ; {
		select {
		case event := <-watch.ResultChan():
			if s, ok := event.Object.(*corev1.Service); ok && len(s.Status.LoadBalancer.Ingress) == 0 {
				continue
			}
		case <-deadline:
			t.Error("the Service gets no address")
		}
		break
	}
	stop()
	threads.Wait()
	if len(rights.refused) > 0 {
		t.Errorf("the account was refused %s", strings.Join(slices.Compact(rights.refused), ", "))
	}
}
