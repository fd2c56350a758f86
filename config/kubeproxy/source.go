package kubeproxy

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/internal/keptfile"
)

// Source is where an agent's configuration comes from: flags, and a file if one
// is named.
type Source struct {
	Flags      *Flags
	Kubeconfig string // --kubeconfig, which has no effect beside a file
	// NodeName is --node-name if that was given; it counts beside a file too.
	NodeName string
	// Mode is --mode if that was given; it counts beside a file that names none.
	Mode string
	// Verbose is --verbose.
	Verbose bool
	// Verbosity is set to what is configured, now and with every change.
	Verbosity *slog.LevelVar

	api    *rest.Config
	from   *Configuration // what api was made for
	format string         // of the log, since the start
}

// debugVerbosity is from when on kube-proxy logs what concerns developers.
const debugVerbosity = 4

// Agent is the configuration of an agent, over what Fairway's own flags say, and
// changes of the file come to it until ctx is done.
func (s *Source) Agent(ctx context.Context, base agent.Config) (agent.Config, error) {
	if s.Flags.File == "" {
		c := s.Flags.configuration(&base)
		c.ClientConnection.Kubeconfig = s.Kubeconfig
		return s.agent(c, base)
	}
	data, err := os.ReadFile(s.Flags.File)
	if err != nil {
		return base, fmt.Errorf("read configuration: %w", err)
	}
	base.RetryBind = true
	config, err := s.parse(data, base)
	if err != nil {
		return base, err
	}
	updates := make(chan agent.Update)
	config.Updates = updates
	go func() {
		err := Watch(ctx, s.Flags.File, data, base.Log, func(data []byte) {
			next, err := s.parse(data, base)
			select {
			case updates <- agent.Update{Config: next, Err: err}:
			case <-ctx.Done():
			}
		})
		if err != nil {
			base.Log.Error("the configuration file can't be watched; its changes are not noticed", "error", err)
		}
	}()
	return config, nil
}

// parse makes an agent's configuration of a file's content.
func (s *Source) parse(data []byte, base agent.Config) (agent.Config, error) {
	c, warnings, err := Parse(data)
	if err != nil {
		return base, fmt.Errorf("configuration %s: %w", s.Flags.File, err)
	}
	for _, w := range warnings {
		base.Log.Warn("configuration", "file", s.Flags.File, "field", w)
	}
	switch {
	case s.Mode == "" || string(c.Mode) == s.Mode:
	case c.Mode == "":
		c.Mode = v1alpha1.ProxyMode(s.Mode)
	default:
		base.Log.Warn("--mode: has no effect beside --config, which names a mode", "file", s.Flags.File, "mode", c.Mode)
	}
	c.HostnameOverride = cmp.Or(s.NodeName, c.HostnameOverride)
	return s.agent(c, base)
}

func (s *Source) agent(c *Configuration, base agent.Config) (agent.Config, error) {
	config, err := Agent(c, base)
	if err != nil {
		return base, err
	}
	if s.from == nil || s.from.ClientConnection != c.ClientConnection {
		if s.api, err = API(c, s.Flags.Master); err != nil {
			return base, err
		}
		s.from = c
	}
	config.API = s.api
	verbosity := max(c.Logging.Verbosity, s.Flags.set.Logging.Verbosity)
	if s.Verbosity != nil {
		level := slog.LevelInfo
		if s.Verbose || verbosity >= debugVerbosity {
			level = slog.LevelDebug
		}
		s.Verbosity.Set(level)
	}
	format := cmp.Or(s.Flags.set.Logging.Format, c.Logging.Format)
	if s.format == "" {
		s.format = format
	} else if format != s.format {
		base.Log.Warn("configuration", "field", "logging.format: takes effect with the next start of the process", "now", s.format, "configured", format)
	}
	if format == "json" {
		config.Log = slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: s.Verbosity}))
	}
	return config, nil
}

// configuration is what the flags alone say. Deprecated flags for ports change
// those of addresses that base has.
func (f *Flags) configuration(base *agent.Config) *Configuration {
	c := f.set
	c.HealthzBindAddress = portOf(f.healthzPort, &base.HealthzAddress)
	c.MetricsBindAddress = portOf(f.metricsPort, &base.MetricsAddress)
	return &c
}

// portOf is the address with another port; 0 clears the address (kube-proxy's
// --healthz-port and --metrics-port).
func portOf(port *int32, address *string) string {
	if port == nil {
		return ""
	}
	if *port == 0 {
		*address = ""
		return ""
	}
	host, _, err := net.SplitHostPort(*address)
	if err != nil {
		return *address
	}
	return net.JoinHostPort(host, strconv.Itoa(int(*port)))
}

// Write writes the configuration that the flags make, with all defaults
// (kube-proxy's --write-config-to). The node's name is written if one is given.
func (f *Flags) Write(base agent.Config, nodeName string) error {
	c := f.configuration(&base)
	c.HostnameOverride = nodeName
	own(c, base)
	if f.File != "" {
		var err error
		if c, _, err = Read(f.File); err != nil {
			return err
		}
	}
	Default(c)
	data, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return keptfile.Write(f.WriteTo, data, 0o644)
}

// own sets fields of c to what Fairway's flags of the same names say.
func own(c *Configuration, base agent.Config) {
	if base.Mode != agent.AutoMode {
		c.Mode = v1alpha1.ProxyMode(base.Mode)
	}
	var ranges []string
	for _, p := range base.Compile.Pods.Prefixes {
		ranges = append(ranges, p.String())
	}
	c.ClusterCIDR = strings.Join(ranges, ",")
	if base.Compile.NodePorts.Primary {
		c.NodePortAddresses = append(c.NodePortAddresses, "primary")
	}
	for _, p := range base.Compile.NodePorts.Prefixes {
		c.NodePortAddresses = append(c.NodePortAddresses, p.String())
	}
	c.IPTables.MasqueradeAll, c.NFTables.MasqueradeAll = base.Compile.MasqueradeAll, base.Compile.MasqueradeAll
	c.HealthzBindAddress = cmp.Or(c.HealthzBindAddress, base.HealthzAddress)
	c.MetricsBindAddress = cmp.Or(c.MetricsBindAddress, base.MetricsAddress)
}
