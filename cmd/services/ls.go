//go:build !agentonly

package services

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fairway-net/fairway/cmd/source"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/examine"
	"github.com/fairway-net/fairway/endpoint/expose"
)

func Ls() *cobra.Command {
	var objects collect.Source
	c := &cobra.Command{
		Use:   "ls",
		Short: "List what is exposed: addresses, ports, hosts, how the endpoints fare, and what is not well",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			namespace := metav1.NamespaceAll
			if cmd.Flags().Changed("namespace") {
				namespace = objects.Namespace
			}
			rows, notes, err := listed(cmd.Context(), &objects, namespace)
			if err != nil {
				var instead error
				if rows, notes, instead = listedInForce(cmd.Context(), &objects, namespace, err); instead != nil {
					return err
				}
			}
			return writeRows(cmd.OutOrStdout(), rows, notes)
		},
	}
	source.Add(c.Flags(), &objects)
	return c
}

// listed is what the API says is exposed, and what of it is not well.
func listed(ctx context.Context, objects *collect.Source, namespace string) ([]expose.Row, []string, error) {
	config, err := objects.Config()
	if err != nil {
		return nil, nil, err
	}
	client, err := kubernetes.NewForConfig(objects.WithFirstAnswerTimeout(config))
	if err != nil {
		return nil, nil, err
	}
	services, err := client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list Services: %w", err)
	}
	endpoints, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list EndpointSlices: %w", err)
	}
	ingresses, err := client.NetworkingV1().Ingresses(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list Ingresses: %w", err)
	}
	rows, notes := expose.Rows(services.Items, endpoints.Items, ingresses.Items), []string(nil)
	if wrong := examine.NotWell(ctx, objects, expose.Own(services.Items), endpoints.Items); len(wrong) > 0 {
		notes = append([]string{"NOT WELL"}, wrong...)
	}
	return rows, notes, nil
}

// listedInForce is what the agents of this machine have in force; failed says why the API isn't
// asked.
func listedInForce(ctx context.Context, objects *collect.Source, namespace string, failed error) ([]expose.Row, []string, error) {
	in, err := examine.InForce(ctx, objects, failed)
	if err != nil {
		return nil, nil, err
	}
	services := slices.DeleteFunc(in.Services, func(s corev1.Service) bool { return namespace != "" && s.Namespace != namespace })
	rows := expose.Rows(services, nil, nil)
	for i := range rows {
		rows[i].Health = fmt.Sprintf("%d in force", in.Taking[types.NamespacedName{Namespace: rows[i].Namespace, Name: rows[i].Name}])
	}
	return rows, []string{"The API can't be asked: " + in.NoAPI, "this is what agents have in force; hosts aren't shown"}, nil
}

func writeRows(out io.Writer, rows []expose.Row, notes []string) error {
	if len(rows) == 0 {
		if _, err := fmt.Fprintln(out, "nothing is exposed; see fairway expose --help"); err != nil {
			return err
		}
	} else {
		table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(table, strings.Join(expose.Columns, "\t"))
		for _, r := range rows {
			fmt.Fprintln(table, strings.Join(r.Cells(), "\t"))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if len(notes) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(out, "\n"+strings.Join(notes, "\n"))
	return err
}
