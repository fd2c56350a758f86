package kubelet_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCrashLoop: a command that fails again and again is backing off, and its
// status keeps how it ended.
func TestCrashLoop(t *testing.T) {
	b := newBench(t)
	b.create(pod("crash", shell("exit 3")))
	p := b.wait("crash", "backing off", func(p *corev1.Pod) bool {
		if p == nil || len(p.Status.ContainerStatuses) == 0 {
			return false
		}
		s := p.Status.ContainerStatuses[0]
		return s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff" && s.RestartCount > 0
	})
	last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if last == nil || last.ExitCode != 3 || p.Status.Phase != corev1.PodRunning {
		t.Errorf("phase %s, ended before: %+v", p.Status.Phase, last)
	}
	b.terminate("crash", 0)
	b.wait("crash", "gone", gone)
}

// TestPodVolumes: containers share an empty directory, find the pod's fields and a
// ConfigMap in one volume.
func TestPodVolumes(t *testing.T) {
	b := newBench(t)
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"key": "value"}}
	if _, err := b.client.CoreV1().ConfigMaps("default").Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	writes := shell("cat /about/name /about/settings/key /info/labels > /shared/all; exec sleep 1000")
	reads := shell("until test -s /elsewhere/all; do sleep 0.05; done; cat /elsewhere/all; exec sleep 1000")
	writes.Name, reads.Name = "writes", "c"
	writes.VolumeMounts = []corev1.VolumeMount{{Name: "about", MountPath: "/about"}, {Name: "info", MountPath: "/info/"}, {Name: "room", MountPath: "/shared"}}
	reads.VolumeMounts = []corev1.VolumeMount{{Name: "room", MountPath: "/elsewhere"}}
	p := pod("volumes", writes, reads)
	p.Labels = map[string]string{"tier": "front"}
	size := resource.MustParse("1Mi")
	p.Spec.Volumes = []corev1.Volume{
		{Name: "room", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}},
		{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		}}}},
		{Name: "about", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
			}}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
				Items:                []corev1.KeyToPath{{Key: "key", Path: "settings/key"}},
			}},
		}}}},
	}
	b.create(p)
	b.wait("volumes", "running", running)
	if said := b.waitLog("default_volumes_c.log", "front"); !strings.Contains(said, `volumesvaluetier="front"`) {
		t.Errorf("the volumes hold %q", said)
	}
	b.terminate("volumes", 0)
	b.wait("volumes", "gone", gone)
}
