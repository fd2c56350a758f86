// Package bpffs has the file system in which eBPF maps, programs and links outlive the
// process that made them.
package bpffs

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// Dir is where the file system is mounted.
const Dir = "/sys/fs/bpf"

// Mount mounts the file system if it isn't.
func Mount() error {
	var stat unix.Statfs_t
	if err := unix.Statfs(Dir, &stat); err != nil {
		return &kernel.MissingError{What: "the BPF file system", Since: "4.4", Err: err}
	}
	if stat.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", Dir, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount the BPF file system on %s: %w", Dir, err)
	}
	return nil
}
