// Package identity authenticates requests without a client certificate, by
// tokens: tokens of ServiceAccounts (serviceaccount.go, with
// claims.go) and join tokens of machines (bootstrap.go).
package identity

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
)

// Objects reads objects from the server's memory: what a token is bound to
// must still be there. A missing one is a NotFound error of the API.
type Objects interface {
	Get(ctx context.Context, resource, namespace, name string) (runtime.Object, error)
}
