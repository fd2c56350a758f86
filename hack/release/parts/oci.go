package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// image is one of a release's images.
type image struct {
	name     string // of the reference, and after "fairway-" of the repository
	binary   string // in an architecture's folder
	programs bool   // with iptables and modprobe, which modes of the agent use
	command  []string
}

// images are all of them. Gateways and the address controller need no program but their own.
var images = []image{
	{"agent", "agent", true, []string{"agent"}},
	{"gateway", "agent", false, []string{"gateway"}},
	{"addresses", "agent", false, []string{"addresses"}},
	{"whole", "fairway", true, nil},
}

// repository is what an image is called where it is imported. That of the agent is the one which the
// manifests of deploy/ name: it can be gateway and addresses, too.
func (i image) repository() string {
	if i.name == "agent" {
		return "docker.io/library/fairway"
	}
	return "docker.io/library/fairway-" + i.name
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

const ociType = "application/vnd.oci.image."

// layout is an OCI image layout that is being written.
type layout struct {
	release
	out   *tar.Writer
	known map[string]bool // digests of what is written
	// layers are those that several images have, by the file or folder.
	layers map[string]packed
}

// packed is a layer that is written.
type packed struct {
	descriptor
	whole string // the digest of what isn't compressed
}

// writeImages writes all images for the architectures of folders, as one tar of an OCI image layout.
func (r release) writeImages(commit, file string, folders []string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // closed below
	l := &layout{r, tar.NewWriter(out), map[string]bool{}, map[string]packed{}}
	var index []descriptor
	for _, i := range images {
		d, err := l.image(i, commit, folders)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
		index = append(index, d)
	}
	if err := l.json("index.json", map[string]any{"schemaVersion": 2, "mediaType": ociType + "index.v1+json", "manifests": index}); err != nil {
		return err
	}
	if err := l.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	if err := l.out.Close(); err != nil {
		return err
	}
	return out.Close()
}

// image writes one image, and returns its index of architectures.
func (l *layout) image(i image, commit string, folders []string) (descriptor, error) {
	about := map[string]string{
		"org.opencontainers.image.version": l.version, "org.opencontainers.image.revision": commit, "org.opencontainers.image.created": l.time.Format(time.RFC3339),
		"org.opencontainers.image.source": "https://github.com/fairway-net/fairway", "org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.title": "fairway " + i.name,
	}
	var manifests []descriptor
	for _, folder := range folders {
		architecture, dir, named := strings.Cut(folder, "=")
		if !named {
			return descriptor{}, fmt.Errorf("%q must be ARCHITECTURE=FOLDER", folder)
		}
		m, err := l.manifest(i, architecture, dir, about)
		if err != nil {
			return m, err
		}
		manifests = append(manifests, m)
	}
	d, err := l.blob("index.v1+json", map[string]any{"schemaVersion": 2, "mediaType": ociType + "index.v1+json", "manifests": manifests, "annotations": about})
	d.Annotations = map[string]string{
		"org.opencontainers.image.ref.name": i.name, "io.containerd.image.name": i.repository() + ":" + tagOf(l.version),
	}
	return d, err
}

// tagOf is a version as a tag, in which no plus may be.
func tagOf(version string) string { return strings.ReplaceAll(version, "+", "-") }

// manifest writes an image for one architecture.
func (l *layout) manifest(i image, architecture, dir string, about map[string]string) (descriptor, error) {
	parts := []string{filepath.Join(dir, "programs")}
	if !i.programs {
		parts = nil
	}
	var layers []descriptor
	var whole []string // digests of layers that aren't compressed
	for _, part := range append(parts, filepath.Join(dir, i.binary)) {
		p, err := l.pack(part)
		if err != nil {
			return descriptor{}, err
		}
		whole, layers = append(whole, p.whole), append(layers, p.descriptor)
	}
	config, err := l.blob("config.v1+json", map[string]any{
		"architecture": architecture, "os": "linux", "created": l.time.Format(time.RFC3339),
		"config": map[string]any{"Entrypoint": []string{"/usr/local/bin/fairway"}, "Cmd": i.command, "Env": []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin"}, "Labels": about},
		"rootfs": map[string]any{"type": "layers", "diff_ids": whole},
	})
	if err != nil {
		return config, err
	}
	d, err := l.blob("manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": ociType + "manifest.v1+json", "config": config, "layers": layers, "annotations": about,
	})
	d.Platform = map[string]string{"architecture": architecture, "os": "linux"}
	return d, err
}

// pack writes a layer, once.
func (l *layout) pack(from string) (packed, error) {
	if p, written := l.layers[from]; written {
		return p, nil
	}
	text, err := l.layer(from)
	if err != nil {
		return packed{}, err
	}
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return packed{}, err
	}
	if _, err := w.Write(text); err != nil {
		return packed{}, err
	}
	if err := w.Close(); err != nil {
		return packed{}, err
	}
	d, err := l.bytes("layer.v1.tar+gzip", zipped.Bytes())
	l.layers[from] = packed{d, digestOf(text)}
	return l.layers[from], err
}

// layer is a tar of a folder's files, or of the program.
func (l *layout) layer(from string) ([]byte, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	info, err := os.Stat(from)
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir():
		for _, dir := range []string{"usr/", "usr/local/", "usr/local/bin/"} {
			if err := w.WriteHeader(&tar.Header{Name: dir, Mode: 0o755, Typeflag: tar.TypeDir, ModTime: l.time}); err != nil {
				return nil, err
			}
		}
		if err := l.add(w, "usr/local/bin/fairway", from, info, ""); err != nil {
			return nil, err
		}
	default:
		err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || path == from {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			link := ""
			if entry.Type()&fs.ModeSymlink != 0 {
				if link, err = os.Readlink(path); err != nil {
					return err
				}
			}
			name, err := filepath.Rel(from, path)
			if err != nil {
				return err
			}
			return l.add(w, name, path, info, link)
		})
		if err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// add adds a file, a folder or a link, of root, with the release's time.
func (l *layout) add(w *tar.Writer, name, file string, info fs.FileInfo, link string) error {
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	if info.IsDir() {
		name += "/"
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	if info.Mode()&fs.ModeSticky != 0 {
		mode = 0o1777
	}
	*header = tar.Header{Typeflag: header.Typeflag, Name: name, Linkname: link, Size: header.Size, Mode: mode, ModTime: l.time, Format: tar.FormatPAX}
	if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// blob writes an object as a blob.
func (l *layout) blob(kind string, v any) (descriptor, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return l.bytes(kind, text)
}

// bytes writes a blob, once.
func (l *layout) bytes(kind string, text []byte) (descriptor, error) {
	d := descriptor{MediaType: ociType + kind, Digest: digestOf(text), Size: int64(len(text))}
	if l.known[d.Digest] {
		return d, nil
	}
	l.known[d.Digest] = true
	return d, l.file("blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:"), text)
}

func (l *layout) json(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return l.file(name, text)
}

func (l *layout) file(name string, text []byte) error {
	if err := l.out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), ModTime: l.time, Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err := l.out.Write(text)
	return err
}
