package kernel

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// AtLeast reports whether the running kernel is of this version or a later one,
// for what it can do that can't be seen in another way. A kernel that doesn't say
// its version is none.
func AtLeast(major, minor int) bool {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return false
	}
	return releaseAtLeast(unix.ByteSliceToString(uts.Release[:]), major, minor)
}

// releaseAtLeast takes a release apart as uname(2) spells it: "6.1.0-40-amd64".
func releaseAtLeast(release string, major, minor int) bool {
	first, rest, _ := strings.Cut(release, ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(rest[:end])
	return errA == nil && errB == nil && (a > major || a == major && b >= minor)
}
