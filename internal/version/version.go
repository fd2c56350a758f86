// Package version says which version of Fairway this is.
package version

// Version is set when the binary is linked.
var Version = "dev"
