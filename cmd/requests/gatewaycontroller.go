package requests

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/controller"
	"github.com/fairway-net/fairway/controller/gateway"
	"github.com/fairway-net/fairway/kube"
)

// gatewayControllerCommand is for clusters whose other controllers are
// Kubernetes' own.
func gatewayControllerCommand() *cobra.Command {
	var kubeconfig string
	options := gateway.Options{Classes: true}
	var certificates config.ACME
	c := &cobra.Command{
		Use:     "controller",
		Short:   "Write the statuses of Gateways and routes, and the Services through which traffic arrives",
		Example: "  fairway gateway controller --kubeconfig admin.conf",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := kube.Config(kubeconfig)
			if err != nil {
				return err
			}
			host, err := os.Hostname()
			if err != nil {
				return fmt.Errorf("name this process for its lease: %w", err)
			}
			if err := certificates.Apply(&options); err != nil {
				return err
			}
			return controller.RunGateways(cmd.Context(), api, controller.Options{
				Lease:   &controller.Lease{Namespace: options.Namespace, Name: "fairway-gateway-controller", Identity: host + "_" + string(uuid.NewUUID())},
				Gateway: options,
			})
		},
	}
	config.AddKubeconfig(c.Flags(), &kubeconfig)
	c.Flags().StringVar(&options.Namespace, "namespace", metav1.NamespaceSystem, "namespace of the Leases: of engines, and of the one by which one process of several works")
	c.Flags().BoolVar(&options.NodeAddresses, "node-addresses", false, "have Gateways answer at the addresses of the nodes that have an engine, instead of a load balancer's")
	certificates.Add(c.Flags())
	return c
}
