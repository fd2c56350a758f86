// Package crds has the CustomResourceDefinitions of Gateway API, generated from
// the types of its own module, for API servers that don't have them. Fields of
// the experimental channel are included, so this is what the definitions say
// their channel is.
package crds

import "embed"

//go:generate ./generate.sh

// Files are the definitions, one YAML document per file.
//
//go:embed *.yaml
var Files embed.FS
