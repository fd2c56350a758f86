//go:build !agentonly

package cmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/internal/ranges"
	"github.com/fairway-net/fairway/server"
)

// serviceCIDRFlag names the flag of the ranges of cluster IPs.
const serviceCIDRFlag = "service-cidr"

func serverCommand() *cobra.Command {
	config := apiserver.DefaultConfig()
	var balancing loadBalancerFlags
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
			if err := prepareServer(cmd.Context(), &config, &balancing, cmd.Flags().Changed(serviceCIDRFlag), dnsAddress); err != nil {
				return err
			}
			defer sayStopping(cmd.Context(), cmd.OutOrStdout(), "the API ends; agents and DNS go on with what they know, and the kernel goes on forwarding")()
			serving, err := serverConfig(config, &balancing, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			return server.Run(cmd.Context(), serving, nil)
		},
	}
	addServerFlags(c.Flags(), &config)
	balancing.add(c.Flags())
	addClusterDNSFlag(c.Flags(), &dnsAddress)
	addVerbosityFlag(c.Flags(), &verbosity)
	c.AddCommand(snapshotCommand(), secretsCommand(), membersCommand())
	return c
}

// serverConfig is what the flags of a server say.
func serverConfig(api apiserver.Config, balancing *loadBalancerFlags, out io.Writer) (server.Config, error) {
	gateways, err := balancing.gateways()
	join := func(ctx context.Context, s *apiserver.Server) (string, error) { return joinLine(ctx, s, out) }
	return server.Config{API: api, Addresses: balancing.options(api.ServiceCIDRs), Gateways: gateways, Join: join, Out: out}, err
}

// prepareServer settles what a server needs to know before it starts: where it
// is one of several, the cluster has decided on ranges and on DNS.
func prepareServer(ctx context.Context, config *apiserver.Config, balancing *loadBalancerFlags, cidrsGiven bool, dnsAddress string) error {
	machine, err := ranges.Uplink(cmp.Or(config.AdvertiseAddress, config.BindAddress))
	if err != nil {
		return err
	}
	if err := config.SettleServiceCIDRs(cidrsGiven, apiserver.Families{LoadBalancers: balancing.firsts(), Machine: machine}); err != nil {
		return err
	}
	wanted, err := clusterDNS(dnsAddress, config.ServiceCIDRs)
	if err != nil {
		return err
	}
	config.ClusterDNS = wanted
	if err := apiserver.Prepare(ctx, config); err != nil {
		return err
	}
	if dnsAddress != "" && config.ClusterDNS != wanted {
		return fmt.Errorf("--cluster-dns: the cluster's is %s; leave it out", config.ClusterDNS)
	}
	return nil
}

// addServerFlags binds the flags of an API server to its configuration, whose
// present values are the defaults.
func addServerFlags(flags *pflag.FlagSet, c *apiserver.Config) {
	flags.StringVar(&c.DataDir, "data-dir", c.DataDir, "where certificates, the admin kubeconfig and the embedded etcd are kept")
	flags.Var((*addressValue)(&c.BindAddress), "bind-address", "address to serve the API at")
	flags.IntVar(&c.Port, "secure-port", c.Port, "port to serve the API at; 0 picks a free one")
	flags.Var((*addressValue)(&c.AdvertiseAddress), "advertise-address", "address at which other machines reach the API; the bind address if not given")
	flags.StringSliceVar(&c.ExtraSANs, "tls-san", c.ExtraSANs, "further names and addresses for the serving certificate")
	flags.Var(&cidrsValue{list: &c.ServiceCIDRs}, serviceCIDRFlag, "range of cluster IPs; a second one, of the other IP family, makes the cluster dual-stack; a new cluster without it has 10.96.0.0/16, fd00:10:96::/112 or both, as its machine and --load-balancer-range have addresses, and keeps them")
	flags.Var(&c.NodePortRange, "service-node-port-range", "range of node ports")
	flags.BoolVar(&c.ClusterInit, "cluster-init", c.ClusterInit, "begin a cluster of servers, or turn a single server into one; the others --join")
	flags.StringVar(&c.Join, "join", c.Join, "join the cluster of the server with this URL, such as https://192.0.2.10:6443; has an effect once")
	addTokenFlags(flags, &c.Token, "fairway token create --server")
	flags.StringVar(&c.ServerName, "server-name", c.ServerName, "name of this server in its cluster; by default the host name")
	flags.IntVar(&c.PeerPort, "peer-port", c.PeerPort, "port at which the servers of a cluster reach each other's etcd")
	flags.StringSliceVar(&c.EtcdServers, "etcd-servers", c.EtcdServers, "URLs of an existing etcd to use instead of the embedded one")
	flags.StringVar(&c.EtcdCAFile, "etcd-cafile", c.EtcdCAFile, "certificate authority of the existing etcd")
	flags.StringVar(&c.EtcdCertFile, "etcd-certfile", c.EtcdCertFile, "client certificate for the existing etcd")
	flags.StringVar(&c.EtcdKeyFile, "etcd-keyfile", c.EtcdKeyFile, "key of the client certificate")
	flags.StringVar(&c.EtcdPrefix, "etcd-prefix", c.EtcdPrefix, "prefix of every key in the existing etcd, to separate them from other keys")
	flags.DurationVar(&c.SnapshotInterval, "snapshot-interval", c.SnapshotInterval, "interval of snapshots of the embedded etcd in DATA-DIR/snapshots; 0 for none")
	flags.IntVar(&c.SnapshotRetention, "snapshot-retention", c.SnapshotRetention, "number of these snapshots to keep")
	flags.StringVar(&c.Audit.PolicyFile, "audit-policy-file", c.Audit.PolicyFile, "audit policy (audit.k8s.io/v1) that selects the requests to log")
	flags.StringVar(&c.Audit.LogPath, "audit-log-path", c.Audit.LogPath, "file that audit events are appended to; - for standard output")
	flags.IntVar(&c.Audit.MaxSize, "audit-log-maxsize", c.Audit.MaxSize, "size in megabytes at which the audit log is rotated")
	flags.IntVar(&c.Audit.MaxBackups, "audit-log-maxbackup", c.Audit.MaxBackups, "number of old audit log files to keep; 0 for all")
	flags.DurationVar(&c.NodeGrace, "node-grace", c.NodeGrace, "time without a sign of life after which a machine is marked as not ready")
	flags.StringVar((*string)(&c.Kubelet), "kubelet-socket", "", "unix socket of what runs pods, for their logs and what is run in them; the lab sets it")
	_ = flags.MarkHidden("kubelet-socket") // it fails only for a flag that isn't there
	flags.Var(agentSockets{c}, "agent-sockets", "directory that has the state directory of each node's agent, where all nodes are on this machine; the lab sets it")
	_ = flags.MarkHidden("agent-sockets") // likewise
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

// agentSockets is the flag's value: the sockets of agents by their nodes.
type agentSockets struct{ config *apiserver.Config }

// String implements pflag.Value.
func (agentSockets) String() string { return "" }

// Type implements pflag.Value.
func (agentSockets) Type() string { return "string" }

// Set implements pflag.Value.
func (a agentSockets) Set(dir string) error {
	a.config.AgentSocket = func(node string) string { return filepath.Join(dir, node, agentlink.SocketName) }
	return nil
}
