package realcluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// image is one layer and how to run it.
type image struct {
	Names      []string          // "registry.k8s.io/pause:3.10"
	Folder     string            // whose files it has, if any
	Programs   map[string]string // path in the image to the machine's file, with the libraries that it links
	Entrypoint []string
	Args       []string // where a container names none
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

const blobs = "blobs/sha256/"

// write makes the file that `ctr images import` reads: an OCI image layout in a tar.
func (i *image) write(path string) error {
	layer, err := i.layer()
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.Names[0], err)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	put := func(name string, text []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err := w.Write(text)
		return err
	}
	var failed error
	blob := func(kind string, text []byte) descriptor {
		sum := sha256.Sum256(text)
		digest := hex.EncodeToString(sum[:])
		if failed == nil {
			failed = put(blobs+digest, text)
		}
		return descriptor{MediaType: "application/vnd.oci.image." + kind, Digest: "sha256:" + digest, Size: int64(len(text))}
	}
	marshal := func(v any) []byte {
		text, err := json.Marshal(v)
		if failed == nil {
			failed = err
		}
		return text
	}
	files := blob("layer.v1.tar", layer)
	config := blob("config.v1+json", marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": i.Entrypoint, "Cmd": i.Args, "Env": []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{files.Digest}},
	}))
	manifest := blob("manifest.v1+json", marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []descriptor{files},
	}))
	var manifests []descriptor
	for _, name := range i.Names {
		manifest.Annotations = map[string]string{"io.containerd.image.name": name}
		manifests = append(manifests, manifest)
	}
	for _, file := range []struct {
		name string
		text []byte
	}{
		{"index.json", marshal(map[string]any{"schemaVersion": 2, "manifests": manifests})},
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
	} {
		if failed == nil {
			failed = put(file.name, file.text)
		}
	}
	if failed == nil {
		failed = w.Close()
	}
	if failed != nil {
		return fmt.Errorf("write image %s: %w", i.Names[0], failed)
	}
	return f.Close()
}

// layer is a tar of the image's files.
func (i *image) layer() ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	if i.Folder != "" {
		if err := w.AddFS(os.DirFS(i.Folder)); err != nil {
			return nil, err
		}
	}
	done := map[string]bool{}
	add := func(at, file string) error {
		if at = strings.TrimPrefix(at, "/"); done[at] {
			return nil
		}
		done[at] = true
		return addProgram(w, at, file)
	}
	for _, at := range slices.Sorted(maps.Keys(i.Programs)) {
		if err := add(at, i.Programs[at]); err != nil {
			return nil, err
		}
		libraries, err := librariesOf(i.Programs[at])
		if err != nil {
			return nil, err
		}
		for _, library := range libraries {
			// Folders have Debian's links from /lib and /lib64.
			if err := add("usr"+strings.TrimPrefix(library, "/usr"), library); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

func addProgram(w *tar.Writer, at, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	for dir := filepath.Dir(at); dir != "."; dir = filepath.Dir(dir) {
		if err := w.WriteHeader(&tar.Header{Name: dir + "/", Mode: 0o755, Typeflag: tar.TypeDir}); err != nil {
			return err
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: at, Mode: 0o755, Size: info.Size(), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

var linked = regexp.MustCompile(`(?m)(/\S+) \(0x`)

// librariesOf are the libraries that a program links, by ldd.
func librariesOf(program string) (paths []string, err error) {
	out, err := exec.Command("ldd", program).CombinedOutput()
	if err != nil {
		if bytes.Contains(out, []byte("not a dynamic executable")) {
			return nil, nil
		}
		return nil, fmt.Errorf("ldd %s: %w: %s", program, err, out)
	}
	for _, m := range linked.FindAllSubmatch(out, -1) {
		paths = append(paths, string(m[1]))
	}
	return paths, nil
}
