package kubelet_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestContainerThatCannotStart: it waits and says why, the pod's other container runs
// meanwhile, at the same addresses, and what was missing has it start.
func TestContainerThatCannotStart(t *testing.T) {
	b := newBench(t)
	lacks, runs := shell("echo $KEY; exec sleep 1000"), shell("exec sleep 1000")
	lacks.Name, runs.Name = "lacks", "runs"
	lacks.Env = []corev1.EnvVar{{Name: "KEY", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "later"}, Key: "key",
	}}}}
	b.create(pod("lacking", lacks, runs))
	p := b.wait("lacking", "waiting with one container running", func(p *corev1.Pod) bool {
		return p != nil && len(p.Status.ContainerStatuses) == 2 && p.Status.ContainerStatuses[1].State.Running != nil
	})
	w := p.Status.ContainerStatuses[0].State.Waiting
	if w == nil || w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, `"later" not found`) || p.Status.Phase != corev1.PodPending {
		t.Errorf("phase %s, the container waits for %+v", p.Status.Phase, w)
	}
	addresses := len(p.Status.PodIPs)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Data: map[string]string{"key": "here"}}
	if _, err := b.client.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p = b.wait("lacking", "running", running)
	if len(p.Status.PodIPs) != addresses {
		t.Errorf("the pod's addresses are %v", p.Status.PodIPs)
	}
	b.waitLog("default_lacking_lacks.log", "here")
	b.terminate("lacking", 0)
	b.wait("lacking", "gone", gone)
}

// TestPodKnowsItself: its resources by variables, and its own name and those that it
// was given in /etc/hosts.
func TestPodKnowsItself(t *testing.T) {
	b := newBench(t)
	c := shell(`echo $CPU $MEMORY; getent hosts knows other.example; echo end; exec sleep 1000`)
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	c.Env = []corev1.EnvVar{
		{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
		{Name: "MEMORY", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}},
	}
	p := pod("knows", c)
	p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"other.example"}}}
	b.create(p)
	p = b.wait("knows", "running", running)
	said := b.waitLog("default_knows_sh.log", "end")
	if !strings.HasPrefix(said, "2 64\n") || !strings.Contains(said, p.Status.PodIPs[len(p.Status.PodIPs)-1].IP) || !strings.Contains(said, "192.0.2.7") {
		t.Errorf("the pod found %q; its addresses are %v", said, p.Status.PodIPs)
	}
	b.terminate("knows", 0)
	b.wait("knows", "gone", gone)
}
