package controller

import (
	"context"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
)

// RunClients is Run with clients of the test's own.
func RunClients(ctx context.Context, typed kubernetes.Interface, objects metadata.Interface, options Options) error {
	return run(ctx, clients{typed: typed, metadata: objects}, options)
}
