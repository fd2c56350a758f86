package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// MemoryLimit is how many bytes the calling process's control group may have, with
// those above it as far as they can be seen: the least of their memory.max
// (Documentation/admin-guide/cgroup-v2.rst). Without a limit it is the greatest
// number.
func MemoryLimit() (uint64, error) {
	root, err := Root()
	if errors.Is(err, ErrNone) {
		return math.MaxUint64, nil
	}
	if err != nil {
		return 0, err
	}
	own, err := Own()
	if err != nil {
		return 0, err
	}
	return memoryLimit(root, own)
}

func memoryLimit(root, own string) (uint64, error) {
	least := uint64(math.MaxUint64)
	for dir := filepath.Join("/", own); ; dir = filepath.Dir(dir) {
		file := filepath.Join(root, dir, "memory.max")
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("read the memory limit: %w", err)
		}
		if word := strings.TrimSpace(string(text)); err == nil && word != "max" {
			n, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read %s: %w", file, err)
			}
			least = min(least, n)
		}
		if dir == "/" {
			return least, nil
		}
	}
}
