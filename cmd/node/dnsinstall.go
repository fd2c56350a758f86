//go:build !agentonly

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/agent/member"
	"github.com/fairway-net/fairway/deploy/install"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/dns"
	"github.com/fairway-net/fairway/dns/machine"
	names "github.com/fairway-net/fairway/dns/outside"
	"github.com/fairway-net/fairway/internal/keptfile"
	"github.com/fairway-net/fairway/kube/credentials"
)

// DNSAndMachine is the DNS server, with what points this machine at one.
func DNSAndMachine() *cobra.Command {
	c := DNS()
	c.AddCommand(dnsInstallCommand(), dnsUninstallCommand())
	return c
}

func dnsInstallCommand() *cobra.Command {
	var objects collect.Source
	var server, domain, outsideZone string
	var search []string
	c := &cobra.Command{
		Use:   "install",
		Short: "Let this machine's own programs resolve the cluster's names, by systemd-resolved or resolv.conf",
		Example: `  sudo fairway dns install
  sudo fairway dns install --search default.svc.cluster.local    # short names too
  sudo fairway dns uninstall                                     # as it was before`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("needs root: try sudo")
			}
			settings := machine.Settings{Domains: []string{domain}, Search: search}
			if outsideZone != "" {
				zone, err := names.Zone(outsideZone)
				if err != nil {
					return fmt.Errorf("--dns-outside-zone %w", err)
				}
				settings.Domains = append(settings.Domains, zone[:len(zone)-1])
			}
			var err error
			if settings.Server, err = clusterServer(cmd.Context(), server, &objects); err != nil {
				return err
			}
			m := &machine.Machine{Systemctl: install.Systemctl}
			said, err := m.Install(settings)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\nTry: getent hosts kubernetes.default.svc.%s\nTo undo: fairway dns uninstall\n", said, domain)
			return err
		},
	}
	flags := c.Flags()
	flags.StringVar(&server, "server", "", "address of the cluster's DNS; without one, that of the Service kube-system/kube-dns")
	flags.StringVar(&domain, "cluster-domain", dns.DefaultOptions().Zone, "the domain of the cluster's names")
	flags.StringVar(&outsideZone, "dns-outside-zone", "", "the zone of load balancer addresses' names, if the agents serve one")
	flags.StringSliceVar(&search, "search", nil, "domains to append to short names")
	flags.StringVar(&objects.Kubeconfig, "kubeconfig", "", collect.KubeconfigHelp)
	return c
}

func dnsUninstallCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall",
		Short: "Undo `fairway dns install`",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("needs root: try sudo")
			}
			m := &machine.Machine{Systemctl: install.Systemctl}
			said, err := m.Uninstall()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
			return err
		},
	}
}

// clusterServer is the address that the flag gives, that this machine was told
// when it joined, or that the API knows.
func clusterServer(ctx context.Context, text string, objects *collect.Source) (netip.Addr, error) {
	if text == "" && objects.Kubeconfig == "" {
		var s member.Settings
		data, err := keptfile.Load(member.SettingsFile(credentials.NodeDir))
		if err == nil && json.Unmarshal(data, &s) == nil && s.DNS.IsValid() {
			return s.DNS, nil
		}
	}
	if text == "" {
		client, err := objects.Client()
		if err != nil {
			return netip.Addr{}, fmt.Errorf("which server? Give --server: %w", err)
		}
		service, err := client.CoreV1().Services(metav1.NamespaceSystem).Get(ctx, dns.ServiceName, metav1.GetOptions{})
		if err != nil {
			return netip.Addr{}, fmt.Errorf("find the cluster's DNS: %w", err)
		}
		text = service.Spec.ClusterIP
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, fmt.Errorf("--server %q: must be an IP address", text)
	}
	return a.Unmap(), nil
}
