package tuning

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// ForgetStart returns to the system what only starting needed: the garbage of
// decoding the whole API, and the parts of the executable that were mapped by
// initialising every library linked in. What is needed again comes back by
// itself, from the page cache.
func ForgetStart() error {
	debug.FreeOSMemory()
	return ForgetExecutable()
}

// ForgetExecutable unmaps the executable. What is needed again comes back by itself.
func ForgetExecutable() error {
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find own executable: %w", err)
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("read own mappings: %w", err)
	}
	span := "" // the mapping that the lines are about, if it is of the executable
	isData := false
	for line := range strings.Lines(string(maps)) {
		switch f := strings.Fields(line); {
		case len(f) > 1 && strings.Contains(f[0], "-"):
			span = ""
			if len(f) == 6 && f[5] == executable && !strings.Contains(f[1], "w") {
				span, isData = f[0], !strings.Contains(f[1], "x")
			}
		case span != "" && f[0] == "Anonymous:" && f[1] == "0":
			if err := forget(span, isData); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget unmaps the pages of a range "from-to". None of it may ever have been
// written to, not by the dynamic linker either: it would be lost. Constants come back
// in small pages, as they are needed: with huge ones, a byte of them is two megabytes,
// and all that is read now and then is as good as the whole. Instructions keep theirs,
// since they run faster so.
func forget(span string, isData bool) error {
	var from, to uintptr
	if _, err := fmt.Sscanf(span, "%x-%x", &from, &to); err != nil {
		return fmt.Errorf("read mapping %q: %w", span, err)
	}
	if isData {
		// A kernel without huge pages has no such advice.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_NOHUGEPAGE)
	}
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
	if errno != 0 {
		return fmt.Errorf("unmap %s of the executable: %w", span, errno)
	}
	return nil
}
