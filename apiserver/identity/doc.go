// Package identity authenticates requests without a client certificate, by
// tokens: tokens of ServiceAccounts (serviceaccount.go, with
// claims.go) and join tokens of machines (bootstrap.go).
package identity

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
)

// Objects reads objects of the core group. A missing one is a NotFound error of the API.
type Objects interface {
	// Get returns what the server's memory holds, and reads the store for what
	// it doesn't hold: memory learns of a new object a moment after its maker.
	Get(ctx context.Context, resource, namespace, name string) (runtime.Object, error)
	// Cached returns what the server's memory holds. It is for objects that are
	// usually missing and asked for by every request.
	Cached(ctx context.Context, resource, namespace, name string) (runtime.Object, error)
}
