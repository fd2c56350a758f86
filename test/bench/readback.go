package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/kernel"
)

// WriteObjects writes what a plane has in the kernel into a file, each object
// ended by a zero byte.
func WriteObjects(ctx context.Context, modeName string, o kernel.Options, path string) (err error) {
	kind, err := dataplane.Find(modeName)
	if err != nil {
		return fmt.Errorf("--mode: %w", err)
	}
	plane, err := kind.New(o)
	if err != nil {
		return err
	}
	there, err := plane.Read(ctx, kernel.Query{Objects: true})
	if err != nil {
		return fmt.Errorf("read objects of %s: %w", modeName, err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write objects: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	for _, object := range there.Objects {
		if _, err := fmt.Fprintf(w, "%s\x00", object); err != nil {
			return fmt.Errorf("write objects: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write objects: %w", err)
	}
	return nil
}
