package kubelet

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// known says whether the lab knows a volume's kind; it leaves out the others.
func known(v corev1.Volume) bool {
	return v.EmptyDir != nil || v.Secret != nil || v.ConfigMap != nil || v.DownwardAPI != nil || v.Projected != nil
}

// volume reads the files of a volume; none where the object is missing and the
// volume optional.
func (w *worker) volume(ctx context.Context, v corev1.Volume) (map[string][]byte, error) {
	switch {
	case v.Secret != nil:
		return w.secretFiles(ctx, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.ConfigMap != nil:
		return w.configMapFiles(ctx, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.DownwardAPI != nil:
		return w.downward(ctx, v.DownwardAPI.Items)
	case v.Projected != nil:
		return w.projected(ctx, v.Projected.Sources)
	}
	return nil, nil
}

func (w *worker) secretFiles(ctx context.Context, name string, items []corev1.KeyToPath, optional *bool) (map[string][]byte, error) {
	s, err := w.kubelet.client.CoreV1().Secrets(w.first.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", name, err)
	}
	return itemsOf(s.Data, items, optional)
}

func (w *worker) configMapFiles(ctx context.Context, name string, items []corev1.KeyToPath, optional *bool) (map[string][]byte, error) {
	m, err := w.kubelet.client.CoreV1().ConfigMaps(w.first.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", name, err)
	}
	data := make(map[string][]byte, len(m.Data)+len(m.BinaryData))
	for key, text := range m.Data {
		data[key] = []byte(text)
	}
	maps.Copy(data, m.BinaryData)
	return itemsOf(data, items, optional)
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

// mode is how a volume's files may be used: everybody reads them where it says
// nothing.
func mode(v corev1.Volume) fs.FileMode {
	var said *int32
	switch {
	case v.Secret != nil:
		said = v.Secret.DefaultMode
	case v.ConfigMap != nil:
		said = v.ConfigMap.DefaultMode
	case v.DownwardAPI != nil:
		said = v.DownwardAPI.DefaultMode
	case v.Projected != nil:
		said = v.Projected.DefaultMode
	}
	return fs.FileMode(ptr.Deref(said, 0o644)) & fs.ModePerm
}

// writeFiles writes files of a mode below a folder, where anybody may write; paths
// may have folders of their own.
func writeFiles(dir string, files map[string][]byte, mode fs.FileMode) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		return fmt.Errorf("open the folder to everybody: %w", err)
	}
	for name, data := range files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("path %q leaves the volume", name)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make the folder of %s: %w", name, err)
		}
		if err := os.WriteFile(path, data, mode); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask
			return fmt.Errorf("set the mode of %s: %w", name, err)
		}
	}
	return nil
}
