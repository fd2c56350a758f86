//go:build !agentonly

package cmd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/endpoint/expose"
)

func exposeCommand() *cobra.Command {
	var objects collect.Source
	var request expose.Request
	var output string
	var dryRun bool
	c := &cobra.Command{
		Use:   "expose NAME --port PORT [--to ADDRESS:PORT,...]",
		Short: "Give processes on any machines one address and one name: creates a Service and its endpoints",
		Example: `  fairway expose web --port 80 --to 10.77.0.12:8000,10.77.0.13:8000 --check http:/
  fairway expose web --port 80 --to 10.77.0.12:8000 --type LoadBalancer -o yaml --dry-run`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Name, request.Namespace = args[0], objects.Namespace
			if output != "" && output != "yaml" {
				return fmt.Errorf("--output %q: must be yaml", output)
			}
			if request.Type == "" {
				request.Type = string(usualType(cmd.Context(), &objects, cmd.ErrOrStderr()))
			}
			service, slices, err := request.Objects()
			if err != nil {
				return err
			}
			if output == "yaml" {
				list := []any{service}
				for _, s := range slices {
					list = append(list, s)
				}
				if err := printManifests(cmd.OutOrStdout(), list); err != nil || dryRun {
					return err
				}
			}
			if dryRun {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "would write Service %s/%s and %d EndpointSlices; -o yaml prints them\n", service.Namespace, service.Name, len(slices))
				return err
			}
			client, err := objects.Client()
			if err != nil {
				return err
			}
			written, err := expose.Apply(cmd.Context(), client, service, slices)
			if err != nil || output != "" {
				return err
			}
			return sayAddresses(cmd.Context(), client, written, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := c.Flags()
	addSource(flags, &objects)
	flags.IntVar(&request.Port, "port", 0, "port of the Service")
	flags.StringSliceVar(&request.To, "to", nil, "endpoints: ADDRESS:PORT or [ADDRESS]:PORT, comma separated; without any, machines publish theirs (fairway publish)")
	flags.StringVar(&request.Protocol, "protocol", "TCP", "TCP, UDP or SCTP")
	flags.StringVar(&request.Check, "check", "", "health check of the endpoints: http:/PATH, https:/PATH, tcp, tls, grpc[:SERVICE], udp:PAYLOAD or icmp")
	flags.StringVar(&request.Type, "type", "", "ClusterIP, NodePort or LoadBalancer; without one, LoadBalancer where there is a pool of addresses (--load-balancer-range), else ClusterIP")
	flags.StringVarP(&output, "output", "o", "", "yaml prints the manifests")
	flags.BoolVar(&dryRun, "dry-run", false, "write nothing")
	if err := c.MarkFlagRequired("port"); err != nil {
		panic("flag of expose: " + err.Error())
	}
	return c
}

func printManifests(out io.Writer, objects []any) error {
	for i, o := range objects {
		data, err := yaml.Marshal(o)
		if err != nil {
			return fmt.Errorf("print manifest: %w", err)
		}
		separator := "---\n"
		if i == 0 {
			separator = ""
		}
		// What the server fills in says nothing here.
		text := strings.NewReplacer("status:\n  loadBalancer: {}\n", "", "  creationTimestamp: null\n", "", "  conditions: {}\n", "").Replace(string(data))
		if _, err := fmt.Fprint(out, separator, text); err != nil {
			return fmt.Errorf("print manifest: %w", err)
		}
	}
	return nil
}

// sayAddresses prints where the Service answers.
func sayAddresses(ctx context.Context, client kubernetes.Interface, s *corev1.Service, out, progress io.Writer) error {
	s, why, err := awaitAddress(ctx, client, s, progress)
	if err != nil {
		return err
	}
	port := s.Spec.Ports[0]
	lines := []string{fmt.Sprintf("Service %s/%s, port %d/%s", s.Namespace, s.Name, port.Port, port.Protocol)}
	lines = append(lines, "  address  "+strings.Join(s.Spec.ClusterIPs, ", "))
	if port.NodePort != 0 {
		lines = append(lines, fmt.Sprintf("  node port  %d, at every node", port.NodePort))
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		lines = append(lines, "  outside  "+outside(s, why))
	}
	lines = append(lines, fmt.Sprintf("  name  %s.%s.svc.cluster.local", s.Name, s.Namespace))
	_, err = fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

// outside lists the load balancer addresses of a Service, or says why there are none.
func outside(s *corev1.Service, why string) string {
	var list []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		if i.IP != "" {
			list = append(list, i.IP)
		} else {
			list = append(list, i.Hostname)
		}
	}
	if len(list) == 0 {
		return "no address yet: " + why
	}
	return strings.Join(list, ", ")
}
