package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const krewHead = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: fairway
spec:
  version: %s
  homepage: https://github.com/fairway-net/fairway
  shortDescription: Say where packets to a Service go, and why not
  description: |
    Says for any client, address and port which Service it is, which rule takes the
    packet, which endpoint gets it, and why not each other one (explain); what is
    wrong with a Service (doctor), what applying manifests would do (diff), and where
    a packet is lost (trace). What nodes say needs Fairway's agent on them; the
    objects alone can be asked about in any cluster.
  platforms:
`

const krewPlatform = `  - selector: {matchLabels: {os: linux, arch: %s}}
    uri: https://github.com/fairway-net/fairway/releases/download/%s/%s
    sha256: %s
    files:
    - {from: fairway, to: kubectl-fairway}
    - {from: LICENSE, to: .}
    bin: kubectl-fairway
`

// writeKrew writes the manifest by which krew installs `kubectl fairway`, of the archives in a folder.
func (r release) writeKrew(folder string) error {
	version := r.version
	if !strings.HasPrefix(version, "v") { // krew takes no other
		version = "v0.0.0-" + version
	}
	text := fmt.Sprintf(krewHead, version)
	for _, architecture := range []string{"amd64", "arm64"} {
		name := fmt.Sprintf("fairway_%s_linux_%s.tar.gz", r.version, architecture)
		archive, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(archive)
		text += fmt.Sprintf(krewPlatform, architecture, r.version, name, hex.EncodeToString(sum[:]))
	}
	return os.WriteFile(filepath.Join(folder, "fairway.krew.yaml"), []byte(text), 0o644) //nolint:gosec // for everybody
}
