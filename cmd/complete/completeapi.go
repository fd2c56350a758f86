package complete

import (
	"context"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/diagnose/collect"
)

// listOf lists objects of one kind, in a namespace if the kind has those.
type listOf func(ctx context.Context, api kubernetes.Interface, namespace string) (runtime.Object, error)

// namesOf asks the API that a command line so far means, and gives the names of
// what it lists. Without an answer there are none: a shell shows no errors.
func namesOf(c *cobra.Command, list listOf) []string {
	objects := collect.Source{Namespace: corev1.NamespaceDefault}
	if f := c.Flag("kubeconfig"); f != nil {
		objects.Kubeconfig = f.Value.String()
	}
	if f := c.Flag("namespace"); f != nil && f.Value.String() != "" {
		objects.Namespace = f.Value.String()
	}
	client, err := objects.Client()
	if err != nil {
		return nil
	}
	return NamesAt(client, objects.Namespace, list)
}

func NamesAt(client kubernetes.Interface, namespace string, list listOf) []string {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	found, err := list(ctx, client, namespace)
	if err != nil {
		return nil
	}
	var names []string
	err = meta.EachListItem(found, func(o runtime.Object) error {
		accessor, err := meta.Accessor(o)
		if err == nil {
			names = append(names, accessor.GetName())
		}
		return err
	})
	if err != nil {
		return nil
	}
	return names
}
