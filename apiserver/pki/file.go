package pki

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
