// Package version says which version of Fairway this is.
package version

import (
	"cmp"
	"runtime/debug"
)

// Version is set when the binary is linked.
var Version = "dev"

// Revision is the commit that the binary was built from, where Go recorded it.
func Revision() string { return cmp.Or(Setting("vcs.revision"), "unknown") }

// Setting is something that Go recorded about the build; "" if it didn't.
func Setting(key string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
