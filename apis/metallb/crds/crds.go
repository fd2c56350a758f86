// Package crds has the CustomResourceDefinitions of MetalLB's kinds, generated
// from the types beside it, for API servers that don't have MetalLB's own.
package crds

import "embed"

// Files are the definitions, one YAML document per file.
//
//go:embed *.yaml
var Files embed.FS
