//go:build !agentonly

package services

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/fairway-net/fairway/cmd/source"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/endpoint/expose"
)

func Ls() *cobra.Command {
	var objects collect.Source
	c := &cobra.Command{
		Use:   "ls",
		Short: "List what is exposed: addresses, ports, hosts, and how the endpoints fare",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := objects.Client()
			if err != nil {
				return err
			}
			ctx, namespace := cmd.Context(), ""
			if cmd.Flags().Changed("namespace") {
				namespace = objects.Namespace
			}
			services, err := client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("list Services: %w", err)
			}
			endpoints, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("list EndpointSlices: %w", err)
			}
			ingresses, err := client.NetworkingV1().Ingresses(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("list Ingresses: %w", err)
			}
			rows := expose.Rows(services.Items, endpoints.Items, ingresses.Items)
			if len(rows) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "nothing is exposed; see fairway expose --help")
				return err
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(table, strings.Join(expose.Columns, "\t"))
			for _, r := range rows {
				fmt.Fprintln(table, strings.Join(r.Cells(), "\t"))
			}
			return table.Flush()
		},
	}
	source.Add(c.Flags(), &objects)
	return c
}
