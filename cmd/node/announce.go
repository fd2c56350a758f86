package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/balance"
	"github.com/fairway-net/fairway/kube/credentials"
)

// Announce is the command about announced addresses.
func Announce() *cobra.Command {
	c := &cobra.Command{Use: "announce", Short: "Show which node announces which load balancer address, and why not"}
	c.AddCommand(announceStatusCommand())
	addRotateKey(c)
	return c
}

func announceStatusCommand() *cobra.Command {
	var agentURL, kubeconfig string
	var here bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show which node announces each Service's addresses; with --here, what this node's agent says",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if here {
				return showReport(cmd.Context(), agentURL, cmd.OutOrStdout())
			}
			return showAnnounced(cmd.Context(), kubeconfig, cmd.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&here, "here", false, "ask the agent of this node: what it announces since when, and why not the rest")
	c.Flags().StringVar(&agentURL, "agent", "http://127.0.0.1:10249", "with --here: where the agent serves its metrics")
	addKubeconfigFlag(c, &kubeconfig)
	return c
}

func addKubeconfigFlag(c *cobra.Command, kubeconfig *string) {
	c.Flags().StringVar(kubeconfig, "kubeconfig", "", "kubeconfig file; without it $KUBECONFIG, or that of this machine's server")
}

// adminKubeconfig is the file that commands for people use; "" is the account of the pod
// that they run in.
func adminKubeconfig(flag string) (string, error) {
	file := cmp.Or(flag, os.Getenv("KUBECONFIG"), credentials.OfServer())
	if file == "" {
		if _, err := rest.InClusterConfig(); err != nil {
			return "", errors.New("no --kubeconfig given, and this machine has no server whose kubeconfig you may read")
		}
	}
	return file, nil
}

// adminClients connect as commands for people do, with the kubeconfig of adminKubeconfig.
func adminClients(flag string) (kubernetes.Interface, *kube.MetalLB, error) {
	file, err := adminKubeconfig(flag)
	if err != nil {
		return nil, nil, err
	}
	config, err := balance.Config(file)
	if err != nil {
		return nil, nil, err
	}
	client, err := kube.Client(config)
	if err != nil {
		return nil, nil, err
	}
	metallb, err := kube.NewMetalLB(config)
	return client, metallb, err
}

// showReport prints what the agent of this node says.
func showReport(ctx context.Context, agentURL string, out io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(agentURL, "/")+"/announce", nil)
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(response.Body, 1024))
		return errors.Join(fmt.Errorf("ask the agent: %s: %s", response.Status, strings.TrimSpace(string(text))), err)
	}
	var report announce.Report
	if err := json.NewDecoder(response.Body).Decode(&report); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return printReport(report, out)
}

func printReport(report announce.Report, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "ADDRESS\tSERVICES\tPOOL\tBY\tTO\tOWNER\tSINCE\tWHY NOT THIS NODE")
	for _, a := range report.Addresses {
		since := "-"
		if !a.Since.IsZero() {
			since = time.Since(a.Since).Round(time.Second).String()
		}
		to := cmp.Or(a.Interface, strings.Join(a.Peers, ","))
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.Address, dash(strings.Join(a.Services, ",")), dash(a.Pool), dash(a.Protocol), dash(to), dash(a.Owner), since, dash(a.WhyNot))
	}
	for _, a := range report.Addresses {
		if a.Conflict != "" && !a.Since.IsZero() {
			fmt.Fprintf(w, "the machine with MAC %s says that it has %s, too\n", a.Conflict, a.Address)
		}
	}
	printSessions(report.Sessions, w)
	for _, address := range slices.SortedFunc(maps.Keys(report.Kept), netip.Addr.Compare) {
		fmt.Fprintf(w, "connections that go on by way of this node, of an address that another one announces now: %d to %s\n", report.Kept[address], address)
	}
	if report.Uncounted > 0 {
		fmt.Fprintln(w, "addresses that this node gives up, and whose connections are being counted:", report.Uncounted)
	}
	for _, n := range report.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	for _, f := range report.Faults {
		fmt.Fprintln(w, "not in force:", f)
	}
	return w.Flush()
}

// printSessions prints the sessions with routers, if there are any.
func printSessions(sessions []announce.Session, w io.Writer) {
	if len(sessions) == 0 {
		return
	}
	fmt.Fprintln(w, "\nBGP PEER\tADDRESS\tASN\tSTATE\tSINCE\tPREFIXES\tBFD\tLAST ERROR")
	for _, s := range sessions {
		address, since, last := "-", "-", s.LastError
		if s.Address.IsValid() {
			address = s.Address.String()
		}
		if !s.Since.IsZero() {
			since = time.Since(s.Since).Round(time.Second).String()
		}
		if last != "" {
			last = fmt.Sprintf("%s (%s ago)", last, time.Since(s.ErrorAt).Round(time.Second))
		}
		if s.Note != "" {
			last = strings.TrimPrefix(last+"; "+s.Note, "; ")
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%d\t%s\t%s\n", s.Peer, address, s.ASN, s.State, since, len(s.Prefixes), dash(s.BFD), dash(last))
	}
}

func dash(text string) string { return cmp.Or(text, "-") }

// showAnnounced prints who announces what, as the API knows it.
func showAnnounced(ctx context.Context, kubeconfig string, out io.Writer) error {
	client, metallb, err := adminClients(kubeconfig)
	if err != nil {
		return err
	}
	services, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	announced, err := announcedBy(ctx, metallb)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tADDRESSES\tPOOL\tANNOUNCED BY\tSINCE\tWHY NOT")
	for _, s := range services.Items {
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			printService(ctx, client, &s, announced[s.Namespace+"/"+s.Name], w)
		}
	}
	if err := printFaults(ctx, metallb, w); err != nil {
		return err
	}
	return w.Flush()
}

// announcement is a node that announces a Service.
type announcement struct {
	node, to string
	since    time.Time
}

// announcedBy lists who announces what, by Service.
func announcedBy(ctx context.Context, metallb *kube.MetalLB) (map[string][]announcement, error) {
	onLinks, toRouters := &v1beta1.ServiceL2StatusList{}, &v1beta1.ServiceBGPStatusList{}
	if err := metallb.V1beta1.Get().Resource("servicel2statuses").Do(ctx).Into(onLinks); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("list ServiceL2Statuses: %w", err)
	}
	if err := metallb.V1beta1.Get().Resource("servicebgpstatuses").Do(ctx).Into(toRouters); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("list ServiceBGPStatuses: %w", err)
	}
	by := map[string][]announcement{}
	add := func(namespace, name, node string, to []string, since metav1.Time) {
		service := namespace + "/" + name
		by[service] = append(by[service], announcement{node, strings.Join(to, ","), since.Time})
	}
	for _, s := range onLinks.Items {
		var interfaces []string
		for _, i := range s.Status.Interfaces {
			interfaces = append(interfaces, i.Name)
		}
		add(s.Status.ServiceNamespace, s.Status.ServiceName, s.Status.Node, interfaces, s.CreationTimestamp)
	}
	for _, s := range toRouters.Items {
		add(s.Status.ServiceNamespace, s.Status.ServiceName, s.Status.Node, s.Status.Peers, s.CreationTimestamp)
	}
	return by, nil
}

func printService(ctx context.Context, client kubernetes.Interface, s *corev1.Service, by []announcement, w io.Writer) {
	var addresses, where []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		addresses = append(addresses, cmp.Or(i.IP, i.Hostname))
	}
	since := "-"
	for _, a := range by {
		where = append(where, a.node+" ("+a.to+")")
		since = time.Since(a.since).Round(time.Second).String()
	}
	why := ""
	switch {
	case len(addresses) == 0:
		why = lastFailure(ctx, client, s)
	case len(where) == 0:
		why = "see `fairway announce status --here` on a node that should"
	}
	fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\t%s\t%s\n", s.Namespace, s.Name, dash(strings.Join(addresses, ",")),
		dash(s.Annotations[v1beta1.AnnotationFromPool]), dash(strings.Join(where, ", ")), since, dash(why))
}

// lastFailure is why a Service has no address, as its Events say.
func lastFailure(ctx context.Context, client kubernetes.Interface, s *corev1.Service) string {
	events, err := client.CoreV1().Events(s.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + s.Name + ",reason=AllocationFailed"})
	if err != nil || len(events.Items) == 0 {
		return "no Event says; is the address controller running?"
	}
	last := slices.MaxFunc(events.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	return last.Message
}

// printFaults prints what of the configuration is not in force.
func printFaults(ctx context.Context, metallb *kube.MetalLB, w io.Writer) error {
	list := &v1beta1.ConfigurationStateList{}
	if err := metallb.V1beta1.Get().Resource("configurationstates").Do(ctx).Into(list); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("list ConfigurationStates: %w", err)
	}
	told := map[string]bool{}
	for _, s := range list.Items {
		for fault := range strings.SplitSeq(s.Status.ErrorSummary, "; ") {
			if fault != "" && !told[fault] {
				told[fault] = true
				fmt.Fprintln(w, "not in force:", fault)
			}
		}
	}
	return nil
}
