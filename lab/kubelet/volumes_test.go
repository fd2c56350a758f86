package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestVolumeFiles checks what a ConfigMap's volume holds.
func TestVolumeFiles(t *testing.T) {
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m"},
		Data:       map[string]string{"a": "text"}, BinaryData: map[string][]byte{"b": {0, 255}},
	}
	w := &worker{kubelet: &Kubelet{client: fake.NewClientset(object)}, first: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}}
	yes := true
	for name, test := range map[string]struct {
		object   string
		items    []corev1.KeyToPath
		optional *bool
		want     map[string]string
		err      string
	}{
		"all":                {object: "m", want: map[string]string{"a": "text", "b": "\x00\xff"}},
		"folders":            {object: "m", items: []corev1.KeyToPath{{Key: "b", Path: "x/y/c"}}, want: map[string]string{"x/y/c": "\x00\xff"}},
		"missing key":        {object: "m", items: []corev1.KeyToPath{{Key: "z", Path: "z"}}, err: "non-existent key: z"},
		"optional key":       {object: "m", items: []corev1.KeyToPath{{Key: "z", Path: "z"}, {Key: "a", Path: "a"}}, optional: &yes, want: map[string]string{"a": "text"}},
		"missing":            {object: "n", err: "read ConfigMap n"},
		"optional":           {object: "n", optional: &yes},
		"path out of volume": {object: "m", items: []corev1.KeyToPath{{Key: "a", Path: "../a"}}, err: "leaves the volume"},
	} {
		t.Run(name, func(t *testing.T) {
			v := corev1.Volume{Name: "v"}
			v.ConfigMap = &corev1.ConfigMapVolumeSource{Items: test.items, Optional: test.optional}
			v.ConfigMap.Name = test.object
			dir := filepath.Join(t.TempDir(), "v")
			files, err := w.volume(t.Context(), v)
			if err == nil {
				err = writeFiles(dir, files, mode(v))
			}
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil || len(files) != len(test.want) {
				t.Fatalf("%d files, %v; want %d", len(files), err, len(test.want))
			}
			for path, want := range test.want {
				if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != want {
					t.Errorf("%s: %q, %v; want %q", path, got, err, want)
				}
			}
		})
	}
}
