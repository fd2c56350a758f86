package kubelet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volumes writes the Secrets and ConfigMaps that a container mounts to files of
// the host. A pod has no file system of its own, so the paths in its arguments
// and variables are changed accordingly: from the first of a pair to the second.
func (w *worker) volumes(ctx context.Context, spec *corev1.Container) ([]string, error) {
	var paths []string
	for _, m := range spec.VolumeMounts {
		for _, v := range w.first.Spec.Volumes {
			if v.Name != m.Name || v.Secret == nil && v.ConfigMap == nil {
				continue
			}
			files, err := w.volume(ctx, v)
			if err != nil {
				return nil, fmt.Errorf("volume %s: %w", v.Name, err)
			}
			dir := filepath.Join(w.kubelet.logs, string(w.uid), v.Name)
			if err := writeFiles(dir, files); err != nil {
				return nil, fmt.Errorf("volume %s: %w", v.Name, err)
			}
			paths = append(paths, m.MountPath+"/", dir+"/")
		}
	}
	return paths, nil
}

// volume reads the files of a volume; none where the object is missing and
// the volume optional.
func (w *worker) volume(ctx context.Context, v corev1.Volume) (map[string][]byte, error) {
	if v.Secret != nil {
		s, err := w.kubelet.client.CoreV1().Secrets(w.first.Namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && isTrue(v.Secret.Optional) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read Secret %s: %w", v.Secret.SecretName, err)
		}
		return itemsOf(s.Data, v.Secret.Items, v.Secret.Optional)
	}
	m, err := w.kubelet.client.CoreV1().ConfigMaps(w.first.Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isTrue(v.ConfigMap.Optional) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", v.ConfigMap.Name, err)
	}
	data := make(map[string][]byte, len(m.Data)+len(m.BinaryData))
	for key, text := range m.Data {
		data[key] = []byte(text)
	}
	maps.Copy(data, m.BinaryData)
	return itemsOf(data, v.ConfigMap.Items, v.ConfigMap.Optional)
}

// itemsOf is what the items choose, by path; everything where there are none.
// A key that is missing is an error unless the volume is optional.
func itemsOf(data map[string][]byte, items []corev1.KeyToPath, optional *bool) (map[string][]byte, error) {
	if len(items) == 0 {
		return data, nil
	}
	chosen := make(map[string][]byte, len(items))
	for _, i := range items {
		value, ok := data[i.Key]
		if ok {
			chosen[i.Path] = value
		} else if !isTrue(optional) {
			return nil, fmt.Errorf("references non-existent key: %s", i.Key)
		}
	}
	return chosen, nil
}

// writeFiles writes files below a folder; paths may have folders of their own.
func writeFiles(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	for name, data := range files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("path %q leaves the volume", name)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("make the folder of %s: %w", name, err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
