package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mounts are where a container's volumes are on the host, by the path where the
// container expects each. A pod has no file system of its own, so the paths in
// its commands and variables are changed accordingly.
type mounts []mount

type mount struct{ path, dir string }

// in changes the paths of volumes in a text.
func (m mounts) in(text string) string {
	for _, one := range m {
		if text == one.path {
			return one.dir
		}
		text = strings.ReplaceAll(text, one.path+"/", one.dir+"/")
	}
	return text
}

// command changes the paths of volumes in a command. tar, by which kubectl cp
// reads files, is told to name them as they were asked for.
func (m mounts) command(argv []string) []string {
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = m.in(word)
	}
	if len(words) == 0 || words[0] != "tar" {
		return words
	}
	for _, one := range m {
		words = append(words, fmt.Sprintf("--transform=s,^%s,%s,", strings.TrimPrefix(one.dir, "/"), strings.TrimPrefix(one.path, "/")))
	}
	return words
}

// writeVolumes writes the files of the volumes that a container mounts.
func (w *worker) writeVolumes(ctx context.Context, spec *corev1.Container) error {
	for _, v := range w.first.Spec.Volumes {
		if !slices.ContainsFunc(spec.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name }) || !known(v) {
			continue
		}
		files, err := w.volume(ctx, v)
		if err == nil {
			err = writeFiles(w.volumeDir(v.Name), files)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	return nil
}

// mounts tells where a container's volumes are.
func (w *worker) mounts(spec *corev1.Container) (mounts, error) {
	var all mounts
	for _, m := range spec.VolumeMounts {
		for _, v := range w.first.Spec.Volumes {
			if v.Name != m.Name || !known(v) {
				continue
			}
			dir, err := subPath(w.volumeDir(v.Name), m.SubPath)
			if err != nil {
				return nil, fmt.Errorf("volume %s: %w", v.Name, err)
			}
			all = append(all, mount{strings.TrimSuffix(m.MountPath, "/"), dir})
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
	if err := os.MkdirAll(dir, 0o700); err != nil {
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
