package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var ofTest = release{version: "v1.2.3", time: time.Unix(1e9, 0).UTC()}

// built are folders as hack/release/build makes them, for two architectures.
func built(t *testing.T) []string {
	t.Helper()
	var folders []string
	for _, architecture := range []string{"amd64", "arm64"} {
		dir := t.TempDir()
		for name, text := range map[string]string{"fairway": "all of it", "agent": "an agent", "programs/usr/sbin/xtables-nft-multi": "iptables"} {
			file := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text+" of "+architecture), 0o755)); err != nil { //nolint:gosec // a program
				t.Fatal(err)
			}
		}
		if err := os.Symlink("xtables-nft-multi", filepath.Join(dir, "programs/usr/sbin/iptables")); err != nil {
			t.Fatal(err)
		}
		folders = append(folders, architecture+"="+dir)
	}
	return folders
}

// filesOf are the files of a tar.
func filesOf(t *testing.T, file string) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := files[h.Name]; twice {
			t.Errorf("%s is there twice", h.Name)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

type manifests struct {
	Manifests []descriptor `json:"manifests"`
	Layers    []descriptor `json:"layers"`
	Config    descriptor   `json:"config"`
}

// TestImages: the layout has each image for each architecture, every blob is what its digest says, and
// two runs give the same bytes.
func TestImages(t *testing.T) {
	folders := built(t)
	first, second := filepath.Join(t.TempDir(), "first.tar"), filepath.Join(t.TempDir(), "second.tar")
	if err := errors.Join(ofTest.writeImages("abc", first, folders), ofTest.writeImages("abc", second, folders)); err != nil {
		t.Fatal(err)
	}
	files := filesOf(t, first)
	one, _ := os.ReadFile(first)
	other, _ := os.ReadFile(second)
	if !bytes.Equal(one, other) {
		t.Error("two runs don't give the same bytes")
	}
	read := func(name string) (m manifests) {
		t.Helper()
		if err := json.Unmarshal(files[name], &m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return m
	}
	blob := func(d descriptor) string {
		t.Helper()
		name := "blobs/sha256/" + strings.TrimPrefix(d.Digest, "sha256:")
		sum := sha256.Sum256(files[name])
		if got := "sha256:" + hex.EncodeToString(sum[:]); got != d.Digest || int64(len(files[name])) != d.Size {
			t.Errorf("%s has %s, %d bytes, not %d", d.Digest, got, len(files[name]), d.Size)
		}
		return name
	}
	index := read("index.json")
	if len(index.Manifests) != len(images) {
		t.Fatalf("%d images, want %d", len(index.Manifests), len(images))
	}
	for i, d := range index.Manifests {
		if got := d.Annotations["org.opencontainers.image.ref.name"]; got != images[i].name {
			t.Errorf("reference %q, want %q", got, images[i].name)
		}
		of := read(blob(d))
		if len(of.Manifests) != 2 || of.Manifests[1].Platform["architecture"] != "arm64" {
			t.Errorf("%s: %+v", images[i].name, of.Manifests)
		}
		for _, m := range of.Manifests {
			one := read(blob(m))
			blob(one.Config)
			if want := map[bool]int{false: 1, true: 2}[images[i].programs]; len(one.Layers) != want {
				t.Errorf("%s has %d layers, want %d", images[i].name, len(one.Layers), want)
			}
			for _, layer := range one.Layers {
				blob(layer)
			}
		}
	}
	if d := index.Manifests[0]; d.Annotations["io.containerd.image.name"] != "docker.io/library/fairway:v1.2.3" {
		t.Errorf("containerd calls the agent's image %q", d.Annotations["io.containerd.image.name"])
	}
}

// TestRPMVersion: versions sort as releases follow each other.
func TestRPMVersion(t *testing.T) {
	for version, want := range map[string]string{"v1.2.3": "1.2.3", "v1.2.3-4-gabc": "1.2.3+4+gabc", "abc1234": "0~git.abc1234", "1234abc-dirty": "0~git.1234abc+dirty"} {
		if got := rpmVersion(version); got != want {
			t.Errorf("%s is %s, want %s", version, got, want)
		}
	}
}

// TestStatements: provenance and the plugin's manifest name the files with their digests.
func TestStatements(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"fairway_v1.2.3_linux_amd64.tar.gz", "fairway_v1.2.3_linux_arm64.tar.gz", "SHA256SUMS"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(ofTest.writeKrew(dir), ofTest.writeProvenance("abc", dir)); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("fairway_v1.2.3_linux_arm64.tar.gz"))
	for _, name := range []string{"fairway.krew.yaml", "fairway_v1.2.3.provenance.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Contains(text, []byte(hex.EncodeToString(sum[:]))) || bytes.Contains(text, []byte(`"SHA256SUMS"`)) {
			t.Errorf("%s, %v:\n%s", name, err, text)
		}
	}
}

// TestSPDX: the list of a binary's parts has the program and Go, with identifiers that SPDX takes.
func TestSPDX(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "test.spdx.json")
	if err := ofTest.writeSPDX(self, file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Packages []struct{ SPDXID, Name string }
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range d.Packages {
		if seen[p.SPDXID] || unfit.MatchString(strings.TrimPrefix(p.SPDXID, "SPDXRef-")) {
			t.Errorf("identifier %q of %s is there twice, or not one of SPDX's", p.SPDXID, p.Name)
		}
		seen[p.SPDXID] = true
	}
	if len(d.Packages) < 3 || d.Packages[1].Name != "stdlib" {
		t.Errorf("packages %+v", d.Packages)
	}
}

// TestSigned: digests are signed as hack/release/build does it and verified as docs/how-to/verify.md says,
// and other digests have no valid signature.
func TestSigned(t *testing.T) {
	dir := t.TempDir()
	run := func(script string) error {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		t.Logf("%s\n%s", script, out)
		return err
	}
	err := run(`ssh-keygen -q -t ed25519 -N '' -f key
echo part > part && sha256sum part > SHA256SUMS
ssh-keygen -q -Y sign -f key -n fairway-release SHA256SUMS
echo "releases@fairway.dev namespaces=\"fairway-release\" $(cut -d' ' -f1,2 key.pub)" > allowed`)
	if err != nil {
		t.Fatal(err)
	}
	const verify = `sha256sum --check SHA256SUMS
ssh-keygen -Y verify -f allowed -I releases@fairway.dev -n fairway-release -s SHA256SUMS.sig < SHA256SUMS`
	if err := run(verify); err != nil {
		t.Errorf("verify: %v", err)
	}
	if err := run("echo other > part; sha256sum part > SHA256SUMS\n" + verify); err == nil {
		t.Error("other digests are taken for signed")
	}
}
