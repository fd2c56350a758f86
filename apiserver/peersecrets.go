package apiserver

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/apis/metallb/v1beta2"
)

// listPeerSecrets returns what rights.PeerSecrets asks: it lists the BGPPeers of
// a namespace anew, from the server's own cache, and names their Secrets.
func listPeerSecrets(loopback *rest.Config) (func(ctx context.Context, namespace string) ([]string, error), error) {
	client, err := dynamic.NewForConfig(dynamic.ConfigFor(loopback))
	if err != nil {
		return nil, fmt.Errorf("create loopback client: %w", err)
	}
	peers := client.Resource(v1beta2.GroupVersion.WithResource("bgppeers"))
	return func(ctx context.Context, namespace string) ([]string, error) {
		list, err := peers.Namespace(namespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) { // the definition was deleted
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list BGPPeers: %w", err)
		}
		var names []string
		for i := range list.Items {
			name, found, err := unstructured.NestedString(list.Items[i].Object, "spec", "passwordSecret", "name")
			if err == nil && found && name != "" {
				names = append(names, name)
			}
		}
		return names, nil
	}, nil
}
