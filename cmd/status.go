package cmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/overview"
)

func statusCommand() *cobra.Command {
	var objects collect.Source
	var watch bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show nodes, Services, addresses and problems on one screen",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := objects.Client()
			if err != nil {
				return err
			}
			if !watch {
				return status(cmd.Context(), client, cmd.OutOrStdout())
			}
			return watchStatus(cmd.Context(), client, cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&objects.Kubeconfig, "kubeconfig", "", collect.KubeconfigHelp)
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every two seconds")
	return c
}

// watchPeriod is how often --watch reads everything again.
const watchPeriod = 2 * time.Second

// watchStatus shows the screen again and again. An API that doesn't answer for a
// while is said in its place.
func watchStatus(ctx context.Context, client kubernetes.Interface, out io.Writer) error {
	const clearScreen = "\x1b[H\x1b[2J"
	for {
		if _, err := fmt.Fprintln(out, clearScreen+time.Now().Format(time.TimeOnly)); err != nil {
			return err
		}
		if err := status(ctx, client, out); err != nil && ctx.Err() == nil {
			fmt.Fprintln(out, "the API doesn't answer:", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPeriod):
		}
	}
}

// status reads what there is and writes the screen.
func status(ctx context.Context, client kubernetes.Interface, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	services, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	slices, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list EndpointSlices: %w", err)
	}
	events, err := client.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning"})
	in := overview.Input{Nodes: nodes.Items, Services: services.Items, Slices: slices.Items}
	switch {
	case apierrors.IsForbidden(err): // such as for a machine's own credential
		in.NoEvents = err.Error()
	case err != nil:
		return fmt.Errorf("list Events: %w", err)
	default:
		in.Events = events.Items
	}
	return overview.Write(out, in)
}
