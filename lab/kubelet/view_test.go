package kubelet_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestPodView: a container's volumes are where it says, however a program names
// them: below folders of the host, in a volume, as one file; what the API wrote is
// read-only and has the mode that was asked for; and the host sees nothing of it.
func TestPodView(t *testing.T) {
	b := newBench(t)
	site := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "site"}, Data: map[string]string{"a.conf": "A", "b.conf": "B"}}
	if _, err := b.client.CoreV1().ConfigMaps("default").Create(t.Context(), site, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c := shell(`cd /; d=/etc/of-fairway/site; cat $d/a.conf /etc/one.conf
		test -e /etc/passwd && test -c /dev/null && echo host
		echo new 2>&- > $d/new || echo read-only
		echo new > /of-fairway/new && cat /of-fairway/new /of-fairway/within/b.conf
		stat -c %a $d/a.conf /of-fairway/; echo end; exec sleep 1000`)
	c.WorkingDir = "/srv/of-fairway/work"
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "site", MountPath: "/of-fairway/within"},
		{Name: "site", MountPath: "/etc/of-fairway/site/"},
		{Name: "site", MountPath: "/etc/one.conf", SubPath: "b.conf"},
		{Name: "room", MountPath: "/of-fairway"},
	}
	p := pod("view", c)
	p.Spec.Volumes = []corev1.Volume{
		{Name: "room", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "site", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "site"}, DefaultMode: ptr.To[int32](0o440),
		}}},
	}
	b.create(p)
	b.wait("view", "running", running)
	said := b.waitLog("default_view_sh.log", "end")
	if want := "ABhost read-only new B440 777 end"; strings.Join(strings.Fields(said), " ") != want {
		t.Errorf("the container found %q, want the words %q", said, want)
	}
	for _, path := range []string{"/of-fairway", "/etc/of-fairway", "/etc/one.conf", "/srv/of-fairway"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is on the host", path)
		}
	}
	b.terminate("view", 0)
	b.wait("view", "gone", gone)
}
