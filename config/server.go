//go:build !agentonly

package config

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/spf13/pflag"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/ingress/engines"
	"github.com/fairway-net/fairway/internal/servicerange"
	"github.com/fairway-net/fairway/server"
)

// serviceCIDRFlag names the flag of the ranges of cluster IPs.
const serviceCIDRFlag = "service-cidr"

// Server is the configuration of an API server with its controllers.
type Server struct {
	API        apiserver.Config
	Addresses  Addresses
	ClusterDNS netip.Addr // of the DNS Service; the range of cluster IPs implies it if not valid
	Verbosity  int        // of the Kubernetes libraries
}

// NewServer is an API server on its own.
func NewServer() *Server { return &Server{API: apiserver.DefaultConfig()} }

// Add adds the flags of an API server on its own.
func (s *Server) Add(flags *pflag.FlagSet) {
	s.add(flags)
	AddClusterDNS(flags, &s.ClusterDNS)
}

func (s *Server) add(flags *pflag.FlagSet) {
	addAPI(flags, &s.API)
	s.Addresses.Add(flags)
	AddVerbosity(flags, &s.Verbosity)
}

// Config is what the machine serves, once it is settled where it is one of several and
// what its cluster has decided on.
func (s *Server) Config(ctx context.Context, given *pflag.FlagSet) (server.Config, error) {
	c := server.Config{API: s.API}
	var err error
	if c.Gateways, err = s.Addresses.Gateways(); err != nil {
		return c, err
	}
	settled := server.Settle{RangesGiven: given.Changed(serviceCIDRFlag), DNS: s.ClusterDNS, ImpliedDNS: ClusterDNS, LoadBalancers: s.Addresses.Firsts()}
	if err := settled.Prepare(ctx, &c.API); err != nil {
		return c, err
	}
	c.Addresses = s.Addresses.Options(c.API.ServiceCIDRs)
	return c, nil
}

// Up is the configuration of everything on one machine.
type Up struct {
	Server
	Agent     *Agent
	Gateways  server.Gateways
	Processes Processes // of Gateways
}

// NewUp is an API server, its machine's agent, and Gateways.
func NewUp() *Up {
	u := &Up{Server: *NewServer(), Agent: newUp(), Gateways: server.Gateways{Serve: true, Engine: engines.Native}, Processes: ProcessPerGateway}
	u.Addresses.Nodes = true
	return u
}

// Add adds the flags.
func (u *Up) Add(flags *pflag.FlagSet) {
	u.add(flags)
	u.Agent.AddRunning(flags)
	addGateways(flags, &u.Gateways)
	flags.StringVar((*string)(&u.Processes), "gateway-processes", string(u.Processes), "gateway: each Gateway has a process of its own, and all Ingresses have one, so that none can bring down another or the API server; one: this process serves all")
}

// addGateways adds the flags that say how Gateways are served on a plain machine.
func addGateways(flags *pflag.FlagSet, g *server.Gateways) {
	flags.BoolVar(&g.Serve, "gateway", g.Serve, "serve Gateways and Ingresses on this machine")
	flags.StringVar(&g.Engine, "gateway-engine", g.Engine, "what serves them: native, in this program, or haproxy, which must be installed (2.6 or later)")
}

func checkGateways(g *server.Gateways) error {
	if err := engines.Check(g.Engine); err != nil {
		return fmt.Errorf("--gateway-engine: %w", err)
	}
	return nil
}

// Join is the configuration of a machine that joins a cluster of Fairway's.
type Join struct {
	Agent
	Gateways server.Gateways
}

// NewJoin is an agent, and Gateways.
func NewJoin() *Join {
	return &Join{Agent: *newMember(), Gateways: server.Gateways{Serve: true, Engine: engines.Native}}
}

// Add adds the flags.
func (j *Join) Add(flags *pflag.FlagSet) {
	j.AddRunning(flags)
	addGateways(flags, &j.Gateways)
}

// Config is the machine's agent.
func (j *Join) Config() (agent.Config, error) {
	if err := checkGateways(&j.Gateways); err != nil {
		return agent.Config{}, err
	}
	return j.Agent.Config()
}

// Validate says what makes no sense, with the name of its flag.
func (u *Up) Validate() error {
	if err := checkGateways(&u.Gateways); err != nil {
		return err
	}
	if err := u.Processes.check("--gateway-processes"); err != nil {
		return err
	}
	for _, cidr := range u.Agent.ClusterCIDRs {
		if err := servicerange.CheckUplink("--cluster-cidr", cidr); err != nil {
			return err
		}
	}
	return u.Agent.Validate()
}

// Config is what the machine serves, and its agent.
func (u *Up) Config(ctx context.Context, given *pflag.FlagSet) (server.Config, agent.Config, error) {
	if err := u.Validate(); err != nil {
		return server.Config{}, agent.Config{}, err
	}
	u.Gateways.OneProcess = u.Processes == OneProcess
	node, err := u.Agent.Config()
	if err != nil {
		return server.Config{}, node, err
	}
	u.ClusterDNS = u.Agent.ClusterDNS
	serving, err := u.Server.Config(ctx, given)
	if err != nil {
		return serving, node, err
	}
	node.Compile.ServiceCIDRs = serving.API.ServiceCIDRs
	node.Register = true
	u.Agent.ServePlainMachine(&node)
	if !serving.API.BindAddress.IsLoopback() && !given.Changed(AgentAddressFlag) { // other servers may come
		node.AgentAddress = AgentPort
	}
	if node.DNS = u.Agent.ServeDNS(serving.API.ClusterDNS); node.DNS != nil {
		node.DNS.WatchPods = true
	}
	return serving, node, nil
}

// addAPI binds the flags of an API server to its configuration, whose
// present values are the defaults.
func addAPI(flags *pflag.FlagSet, c *apiserver.Config) {
	flags.StringVar(&c.DataDir, "data-dir", c.DataDir, "where certificates, the admin kubeconfig and the embedded etcd are kept")
	flags.Var((*Address)(&c.BindAddress), "bind-address", "address to serve the API at")
	flags.IntVar(&c.Port, "secure-port", c.Port, "port to serve the API at; 0 picks a free one")
	flags.Var((*Address)(&c.AdvertiseAddress), "advertise-address", "address at which other machines reach the API; the bind address if not given")
	flags.StringSliceVar(&c.ExtraSANs, "tls-san", c.ExtraSANs, "further names and addresses for the serving certificate")
	flags.Var(&CIDRs{List: &c.ServiceCIDRs}, serviceCIDRFlag, "range of cluster IPs; a second one, of the other IP family, makes the cluster dual-stack; a new cluster without it has 10.96.0.0/16, fd00:10:96::/112 or both, as its machine and --load-balancer-range have addresses, and keeps them")
	flags.Var(&c.NodePortRange, "service-node-port-range", "range of node ports")
	flags.BoolVar(&c.ClusterInit, "cluster-init", c.ClusterInit, "begin a cluster of servers, or turn a single server into one; the others --join")
	flags.StringVar(&c.Join, "join", c.Join, "join the cluster of the server with this URL, such as https://192.0.2.10:6443; has an effect once")
	AddToken(flags, &c.Token, "fairway token create --server")
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
	flags.StringSliceVar(&c.GatewayMachines, "gateway-machines", c.GatewayMachines, "machines that may serve Gateways when they join, and read the keys of their certificates for that: names of Nodes, * for all, none for none")
	flags.StringVar((*string)(&c.Kubelet), "kubelet-socket", "", "unix socket of what runs pods, for their logs and what is run in them; the lab sets it")
	_ = flags.MarkHidden("kubelet-socket") // it fails only for a flag that isn't there
	flags.Var(agentSockets{c}, "agent-sockets", "directory that has the state directory of each node's agent, where all nodes are on this machine; the lab sets it")
	_ = flags.MarkHidden("agent-sockets") // likewise
	flags.StringVar(&c.TokenFile, "token-auth-file", c.TokenFile, "file of bearer tokens: token,user,uid,\"group1,group2\"")
}

var _ pflag.Value = (*utilnet.PortRange)(nil)

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
