package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
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
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, fmt.Errorf("volume %s: %w", v.Name, err)
			}
			for name, data := range files {
				if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), data, 0o600); err != nil {
					return nil, fmt.Errorf("volume %s: %w", v.Name, err)
				}
			}
			paths = append(paths, m.MountPath+"/", dir+"/")
		}
	}
	return paths, nil
}

// volume reads the files of a volume.
func (w *worker) volume(ctx context.Context, v corev1.Volume) (map[string][]byte, error) {
	data := map[string][]byte{}
	var items []corev1.KeyToPath
	if v.Secret != nil {
		s, err := w.kubelet.client.CoreV1().Secrets(w.first.Namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		data, items = s.Data, v.Secret.Items
	} else {
		m, err := w.kubelet.client.CoreV1().ConfigMaps(w.first.Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		for key, text := range m.Data {
			data[key] = []byte(text)
		}
		items = v.ConfigMap.Items
	}
	if len(items) == 0 {
		return data, nil
	}
	chosen := map[string][]byte{}
	for _, i := range items {
		chosen[i.Path] = data[i.Key]
	}
	return chosen, nil
}
