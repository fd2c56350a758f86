package pki

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzRotation: what another server, or a backup, has in place of keys is refused, and never more than that.
func FuzzRotation(f *testing.F) {
	dir := f.TempDir()
	if _, err := Open(dir); err != nil {
		f.Fatal(err)
	}
	cert, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		f.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(cert, key)
	f.Add(append(cert, cert...), append(key, key...))
	f.Add(key, cert)
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		for _, name := range Rotated {
			r, err := ParseRotation(name, map[string][]byte{name + ".crt": cert, name + ".key": key})
			if err == nil && r.Phase == "" {
				t.Errorf("%s is taken and in no phase", name)
			}
		}
	})
}
