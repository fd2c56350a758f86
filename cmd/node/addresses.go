package node

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/fairway-net/fairway/cmd/logs"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/controller"
	"github.com/fairway-net/fairway/kube/balance"
)

func Addresses() *cobra.Command {
	var balancing config.Addresses
	var kubeconfig, namespace string
	var serviceCIDRs []netip.Prefix
	var verbosity int
	c := &cobra.Command{
		Use:   "addresses",
		Short: "Give addresses to Services of type LoadBalancer in a cluster; replaces MetalLB's controller",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := logs.SetLibraries(verbosity); err != nil {
				return err
			}
			api, err := balance.Config(kubeconfig)
			if err != nil {
				return err
			}
			host, err := os.Hostname()
			if err != nil {
				return fmt.Errorf("name this process for its lease: %w", err)
			}
			options := controller.Options{
				Lease:     &controller.Lease{Namespace: namespace, Name: "fairway-addresses", Identity: host + "_" + string(uuid.NewUUID())},
				Addresses: balancing.Options(serviceCIDRs),
			}
			options.Addresses.Namespace, options.Addresses.MakeNamespace = namespace, false
			return controller.RunAddresses(cmd.Context(), api, options)
		},
	}
	config.AddKubeconfig(c.Flags(), &kubeconfig)
	c.Flags().StringVar(&namespace, "namespace", v1beta1.DefaultNamespace, "namespace of the pools, and of the Lease that one process of several works by")
	c.Flags().Var(&config.CIDRs{List: &serviceCIDRs}, "service-cidr", "ranges of cluster IPs, which no pool may have")
	balancing.Add(c.Flags())
	config.AddVerbosity(c.Flags(), &verbosity)
	return c
}
