//go:build !agentonly

package services

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/fairway-net/fairway/cmd/source"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/endpoint/expose"
)

func Expose() *cobra.Command {
	var objects collect.Source
	var request expose.Request
	var output string
	var dryRun, remove bool
	c := &cobra.Command{
		Use:   "expose NAME --port PORT [--to ADDRESS:PORT,...] [--host NAME]",
		Short: "Give processes on any machines one address and one name: creates a Service and its endpoints",
		Example: `  fairway expose web --port 80 --to 10.77.0.12:8000,10.77.0.13:8000 --check http:/
  fairway expose shop --port 80 --to 10.77.0.12:8000,10.77.0.13:8000 --host shop.example.com --tls auto
  fairway expose db --port 5432 --to 10.77.0.12:5432,10.77.0.13:5432 --backup 10.77.0.13 --check tcp
  fairway expose mail --port 25 --port 465:4650 --to 10.77.0.12 --keep-client-address
  fairway expose web --port 80 --to 10.77.0.12:8000 --type LoadBalancer -o yaml --dry-run
  fairway expose web --remove`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Name, request.Namespace = args[0], objects.Namespace
			if output != "" && output != "yaml" {
				return fmt.Errorf("--output %q: must be yaml", output)
			}
			if remove {
				return removeExposed(cmd, &objects, &request)
			}
			began := time.Now()
			if request.Type == "" && len(request.Web.Hosts) > 0 {
				request.Type = string(corev1.ServiceTypeClusterIP) // clients come by the gateway
			}
			if request.Type == "" {
				request.Type = string(usualType(cmd.Context(), &objects, cmd.ErrOrStderr()))
			}
			wanted, err := exposed(cmd.Context(), &objects, &request)
			if err != nil {
				return err
			}
			if output == "yaml" {
				if err := printManifests(cmd.OutOrStdout(), manifestsOf(wanted)); err != nil || dryRun {
					return err
				}
			}
			if dryRun {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "would write Service %s/%s and %d other objects; -o yaml prints them\n", request.Namespace, request.Name, len(manifestsOf(wanted))-1)
				return err
			}
			client, err := objects.Client()
			if err != nil {
				return err
			}
			written, isNew, err := expose.Apply(cmd.Context(), client, wanted)
			if err != nil || output != "" {
				return err
			}
			var at []string
			if wanted.Ingress != nil {
				if at, err = awaitGateway(cmd.Context(), client, wanted.Ingress, began, cmd.ErrOrStderr()); err != nil {
					return undo(cmd.Context(), client, written, isNew, err)
				}
			}
			if err := sayAddresses(cmd.Context(), client, written, cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
				return err
			}
			return sayMore(cmd.OutOrStdout(), &request, at)
		},
	}
	flags := c.Flags()
	source.Add(flags, &objects)
	flags.StringSliceVar(&request.Ports, "port", nil, "port of the Service, or PORT:TARGET where the endpoints have another; may be repeated")
	flags.StringSliceVar(&request.To, "to", nil, "endpoints: ADDRESS:PORT or [ADDRESS]:PORT, comma separated, or ADDRESS with --port PORT:TARGET; without any, machines publish theirs (fairway publish)")
	flags.StringVar(&request.Protocol, "protocol", "TCP", "TCP, UDP or SCTP")
	flags.StringVar(&request.Check, "check", "", "health check of the endpoints: http:/PATH, https:/PATH, tcp, tls, grpc[:SERVICE], udp:PAYLOAD or icmp")
	flags.StringSliceVar(&request.Weights, "weight", nil, "ADDRESS=WEIGHT: the share of an endpoint, 1 if not given; may be repeated")
	flags.StringSliceVar(&request.Backups, "backup", nil, "ADDRESS of an endpoint that gets connections only while no other endpoint is healthy, as a database's standby; may be repeated, and wants --check")
	flags.StringSliceVar(&request.Web.Hosts, "host", nil, "name by which clients reach the Service by HTTP, such as shop.example.com; may be repeated")
	flags.StringVar(&request.Web.Path, "path", "", "with --host: only paths that begin with this")
	flags.StringVar(&request.Web.TLS, "tls", "", "with --host: auto (a certificate by ACME), the name of a Secret, or CERTFILE,KEYFILE")
	flags.BoolVar(&request.KeepClientAddress, "keep-client-address", false, "endpoints see the client's address (externalTrafficPolicy: Local): only machines with an endpoint of their own answer")
	flags.StringVar(&request.Type, "type", "", "ClusterIP, NodePort or LoadBalancer; without one, LoadBalancer where there is a pool of addresses (--load-balancer-range), else ClusterIP; ClusterIP with --host")
	flags.StringVarP(&output, "output", "o", "", "yaml prints the manifests")
	flags.BoolVar(&dryRun, "dry-run", false, "write nothing")
	flags.BoolVar(&remove, "remove", false, "remove the Service, and what expose made with it")
	c.MarkFlagsOneRequired("port", "remove")
	for _, flag := range []string{"port", "to", "host", "tls", "path", "check", "weight", "backup", "type", "protocol", "keep-client-address", "dry-run", "output"} {
		c.MarkFlagsMutuallyExclusive(flag, "remove")
	}
	return c
}

// undo removes what was made just now and is refused, and says so.
func undo(ctx context.Context, client kubernetes.Interface, s *corev1.Service, isNew bool, refused error) error {
	switch {
	case !errors.Is(refused, errRefused):
		return refused
	case !isNew:
		return fmt.Errorf("%w; Service %s/%s was there before, and is changed", refused, s.Namespace, s.Name)
	}
	if err := expose.Remove(ctx, client, s.Namespace, s.Name); err != nil {
		return errors.Join(refused, err)
	}
	return fmt.Errorf("%w; nothing was left of it", refused)
}

// exposed are the objects of a request; files of a certificate are read.
func exposed(ctx context.Context, source *collect.Source, request *expose.Request) (o expose.Objects, err error) {
	if o.Service, o.Slices, err = request.Objects(); err != nil {
		return o, err
	}
	if request.KeepClientAddress && len(o.Slices) > 0 {
		client, err := source.Client()
		if err != nil {
			return o, err
		}
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return o, fmt.Errorf("--keep-client-address: list the machines that have joined: %w", err)
		}
		if err := expose.Place(o, nodes.Items); err != nil {
			return o, err
		}
	}
	if cert, key, files := request.Web.Files(); files && len(request.Web.Hosts) > 0 {
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			return o, fmt.Errorf("--tls %s: %w", request.Web.TLS, err)
		}
		var certErr, keyErr error
		request.Web.Cert, certErr = os.ReadFile(cert)
		request.Web.Key, keyErr = os.ReadFile(key)
		if err := errors.Join(certErr, keyErr); err != nil {
			return o, fmt.Errorf("--tls: %w", err)
		}
	}
	o.Ingress, o.Secret, err = request.Ingress(o.Service)
	return o, err
}

func manifestsOf(o expose.Objects) []any {
	list := []any{o.Service}
	for _, s := range o.Slices {
		list = append(list, s)
	}
	if o.Secret != nil {
		list = append(list, o.Secret)
	}
	if o.Ingress != nil {
		list = append(list, o.Ingress)
	}
	return list
}

// sayMore says what holds of hosts, which are served at some addresses, and clients' addresses.
func sayMore(out io.Writer, r *expose.Request, at []string) error {
	scheme := "http"
	if r.Web.TLS != "" {
		scheme = "https"
	}
	where := "nobody serves it yet; fairway ls shows at which address once somebody does"
	if len(at) > 0 {
		where = "once the name leads to " + strings.Join(at, ", ")
	}
	for _, host := range r.Web.Hosts {
		if _, err := fmt.Fprintf(out, "  web  %s://%s%s, %s\n", scheme, host, r.Web.Path, where); err != nil {
			return err
		}
	}
	if !r.KeepClientAddress {
		return nil
	}
	_, err := fmt.Fprintln(out, "  clients' addresses are kept: a machine answers only while a process of its own is an endpoint, at an address of that machine")
	return err
}

func removeExposed(cmd *cobra.Command, objects *collect.Source, r *expose.Request) error {
	client, err := objects.Client()
	if err != nil {
		return err
	}
	if err := expose.Remove(cmd.Context(), client, r.Namespace, r.Name); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Service %s/%s is removed, with its endpoints and hosts\n", r.Namespace, r.Name)
	return err
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
	var ports, nodePorts []string
	for _, p := range s.Spec.Ports {
		ports = append(ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		if p.NodePort != 0 {
			nodePorts = append(nodePorts, fmt.Sprint(p.NodePort))
		}
	}
	lines := []string{fmt.Sprintf("Service %s/%s, port %s", s.Namespace, s.Name, strings.Join(ports, ", "))}
	lines = append(lines, "  address  "+strings.Join(s.Spec.ClusterIPs, ", "))
	if len(nodePorts) > 0 {
		lines = append(lines, fmt.Sprintf("  node port  %s, at every node", strings.Join(nodePorts, ", ")))
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
