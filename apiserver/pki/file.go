package pki

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/keptfile"
)

// WriteFile replaces a file at once, with the given mode from the start.
func WriteFile(name string, data []byte, mode os.FileMode) error {
	return keptfile.Write(name, data, mode)
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
