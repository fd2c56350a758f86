package cmd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/controller"
	"github.com/fairway-net/fairway/internal/tuning"
)

func serverCommand() *cobra.Command {
	config := apiserver.DefaultConfig()
	var verbosity int
	var dnsAddress string
	c := &cobra.Command{
		Use:   "server",
		Short: "Serve the API, with its storage, and run the controllers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := setLibraryLogs(verbosity); err != nil {
				return err
			}
			var err error
			if config.ClusterDNS, err = clusterDNS(dnsAddress, config.ServiceCIDRs); err != nil {
				return err
			}
			return runServer(cmd.Context(), config, cmd.OutOrStdout(), nil)
		},
	}
	addServerFlags(c.Flags(), &config)
	addClusterDNSFlag(c.Flags(), &dnsAddress)
	addVerbosityFlag(c.Flags(), &verbosity)
	return c
}

// roomForGarbage bounds how much garbage gathers in a server.
const roomForGarbage = 1 << 30

// runServer serves until the context ends. Once the API answers, the server is
// passed to ready, if that is not nil; it must have room for it.
func runServer(ctx context.Context, config apiserver.Config, out io.Writer, ready chan<- *apiserver.Server) error {
	if _, err := tuning.RoomForGarbage(roomForGarbage); err != nil {
		return err
	}
	server, err := apiserver.Start(ctx, config)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "API server ready at %s; kubeconfig: %s\n", server.URL(), server.AdminKubeconfig()); err != nil {
		return errors.Join(err, server.Close())
	}
	if ready != nil {
		ready <- server
	}
	options, err := controllerOptions(config)
	if err != nil {
		return errors.Join(err, server.Close())
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := controller.Run(ctx, server.LoopbackConfig(), options); err != nil {
			return errors.Join(fmt.Errorf("run controllers: %w", err), server.Close())
		}
		return nil
	})
	group.Go(server.Wait)
	return group.Wait()
}

// controllerOptions lets one server's controllers work at a time where several
// servers may share an etcd.
func controllerOptions(config apiserver.Config) (controller.Options, error) {
	if len(config.EtcdServers) == 0 {
		return controller.Options{}, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return controller.Options{}, fmt.Errorf("name this server for the controllers' lease: %w", err)
	}
	return controller.Options{Lease: &controller.Lease{
		Namespace: metav1.NamespaceSystem,
		Name:      "fairway-controllers",
		Identity:  host + "_" + string(uuid.NewUUID()),
	}}, nil
}

// addServerFlags binds the flags of an API server to its configuration, whose
// present values are the defaults.
func addServerFlags(flags *pflag.FlagSet, c *apiserver.Config) {
	flags.StringVar(&c.DataDir, "data-dir", c.DataDir, "where certificates, the admin kubeconfig and the embedded etcd are kept")
	flags.Var((*addressValue)(&c.BindAddress), "bind-address", "address to serve the API at")
	flags.IntVar(&c.Port, "secure-port", c.Port, "port to serve the API at; 0 picks a free one")
	flags.Var((*addressValue)(&c.AdvertiseAddress), "advertise-address", "address at which other machines reach the API; the bind address if not given")
	flags.StringSliceVar(&c.ExtraSANs, "tls-san", c.ExtraSANs, "further names and addresses for the serving certificate")
	flags.Var(&cidrsValue{list: &c.ServiceCIDRs}, "service-cidr", "range of cluster IPs; a second one, of the other IP family, makes the cluster dual-stack")
	flags.Var(&c.NodePortRange, "service-node-port-range", "range of node ports")
	flags.StringSliceVar(&c.EtcdServers, "etcd-servers", c.EtcdServers, "URLs of an existing etcd to use instead of the embedded one")
	flags.StringVar(&c.EtcdCAFile, "etcd-cafile", c.EtcdCAFile, "certificate authority of the existing etcd")
	flags.StringVar(&c.EtcdCertFile, "etcd-certfile", c.EtcdCertFile, "client certificate for the existing etcd")
	flags.StringVar(&c.EtcdKeyFile, "etcd-keyfile", c.EtcdKeyFile, "key of the client certificate")
	flags.StringVar(&c.TokenFile, "token-auth-file", c.TokenFile, "file of bearer tokens: token,user,uid,\"group1,group2\"")
}

var _ pflag.Value = (*utilnet.PortRange)(nil)

// addressValue is a flag that takes an IP address.
type addressValue netip.Addr

func (v *addressValue) String() string {
	if addr := (*netip.Addr)(v); addr.IsValid() {
		return addr.String()
	}
	return ""
}

func (v *addressValue) Set(s string) error {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return fmt.Errorf("%q is not an IP address", s)
	}
	*v = addressValue(addr)
	return nil
}

func (v *addressValue) Type() string { return "ip" }

// cidrsValue is a flag that takes ranges, comma separated or repeated. The
// first use replaces the default.
type cidrsValue struct {
	list *[]netip.Prefix
	set  bool
}

func (v *cidrsValue) String() string {
	if v.list == nil {
		return ""
	}
	names := make([]string, len(*v.list))
	for i, p := range *v.list {
		names[i] = p.String()
	}
	return strings.Join(names, ",")
}

func (v *cidrsValue) Set(s string) error {
	if !v.set {
		*v.list, v.set = nil, true
	}
	for value := range strings.SplitSeq(s, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("%q is not a CIDR such as 10.96.0.0/16", value)
		}
		*v.list = append(*v.list, p.Masked())
	}
	return nil
}

func (v *cidrsValue) Type() string { return "cidrs" }

func addVerbosityFlag(flags *pflag.FlagSet, verbosity *int) {
	flags.IntVarP(verbosity, "v", "v", 0, "log of the Kubernetes libraries: 0 for none, up to 10")
}

// setLibraryLogs sets how much the Kubernetes libraries log. What concerns the
// user is returned as an error or logged by ourselves.
func setLibraryLogs(verbosity int) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	settings := map[string]string{"v": strconv.Itoa(verbosity)}
	if verbosity == 0 {
		settings["logtostderr"] = "false"
		settings["stderrthreshold"] = "FATAL"
		klog.SetOutput(io.Discard)
	}
	for name, value := range settings {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("set library log level: %w", err)
		}
	}
	return nil
}
