package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// writeVolumes writes the files of the volumes that a container mounts.
func (w *worker) writeVolumes(ctx context.Context, spec *corev1.Container) error {
	for _, v := range w.first.Spec.Volumes {
		if !slices.ContainsFunc(spec.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name }) || !known(v) {
			continue
		}
		files, err := w.volume(ctx, v)
		if err == nil {
			err = writeFiles(w.volumeDir(v.Name), files, mode(v))
		}
		if err != nil {
			return fmt.Errorf("%w %s: %w", errVolume, v.Name, err)
		}
	}
	return nil
}

// view is what a container finds in the file system: its volumes.
func (w *worker) view(spec *corev1.Container) (*view, error) {
	all := &view{folder: spec.WorkingDir, scratch: filepath.Join(w.kubelet.logs, "view")}
	for _, m := range spec.VolumeMounts {
		for _, v := range w.first.Spec.Volumes {
			if v.Name != m.Name || !known(v) {
				continue
			}
			from, err := subPath(w.volumeDir(v.Name), m.SubPath)
			if err != nil {
				return nil, fmt.Errorf("volume %s: %w", v.Name, err)
			}
			// What the API wrote is read-only, as in Kubernetes.
			all.mounts = append(all.mounts, mount{filepath.Join("/", m.MountPath), from, m.ReadOnly || v.EmptyDir == nil})
		}
	}
	return all, nil
}

// volumeDir is the pod's folder for a volume, which its containers share.
func (w *worker) volumeDir(name string) string {
	return filepath.Join(w.volumesDir(), name)
}

func (w *worker) volumesDir() string { return filepath.Join(w.kubelet.logs, string(w.uid)) }

// subPath is a path in a volume, made a folder if there is nothing.
func subPath(dir, path string) (string, error) {
	if path == "" {
		return dir, nil
	}
	if !filepath.IsLocal(path) {
		return "", fmt.Errorf("subPath %q leaves the volume", path)
	}
	dir = filepath.Join(dir, path)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the folder of subPath: %w", err)
	}
	return dir, nil
}

// removeVolumes removes the files of the pod's volumes, with what it wrote there.
func (w *worker) removeVolumes() error {
	if err := os.RemoveAll(w.volumesDir()); err != nil {
		return fmt.Errorf("remove the pod's volumes: %w", err)
	}
	return nil
}
