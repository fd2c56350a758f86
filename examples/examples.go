// Package examples holds manifests to learn from and to try in a lab; `fairway
// lab demo` applies all of them and checks what answers.
package examples

import "embed"

// Files are the manifests.
//
//go:embed *.yaml
var Files embed.FS
