package pki

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// WriteFile replaces a file at once, with the given mode from the start: no
// reader ever sees half of it, and a secret is never readable for others.
func WriteFile(name string, data []byte, mode os.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), ".tmp-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(tmp.Name()))
	}
	return nil
}

// WriteFile writes certificate and key into one file, NAME.pem, for its owner
// only. Whoever reads it while it is renewed has a pair that belongs together.
// The two files that earlier versions wrote, NAME.crt and NAME.key, go.
func (p Pair) WriteFile(name string) error {
	if err := WriteFile(name, slices.Concat(p.Cert, p.Key), 0o600); err != nil {
		return err
	}
	for _, extension := range []string{".crt", ".key"} {
		old := strings.TrimSuffix(name, ".pem") + extension
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove a pair of an earlier version: %w", err)
		}
	}
	return nil
}
