// Package validation refuses what Fairway takes less of than Kubernetes does, or says by other means: endpoints in the
// Service ranges, ranges that the allocator can't number, objects that have no strategy of their own. What
// Kubernetes says of a kind is in package upstream.
package validation

import "k8s.io/apimachinery/pkg/util/validation/field"

var (
	specPath   = field.NewPath("spec")
	statusPath = field.NewPath("status")
)

// oneOf requires one of a few values.
func oneOf[T ~string](path *field.Path, value T, supported ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	for _, s := range supported {
		if value == s {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, supported)}
}
