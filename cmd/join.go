//go:build !agentonly

package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/dns"
	"github.com/fairway-net/fairway/endpoint/publish"
	"github.com/fairway-net/fairway/internal/keptfile"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/balance"
	"github.com/fairway-net/fairway/kube/credentials"
	"github.com/fairway-net/fairway/kube/join"
)

func joinCommand() *cobra.Command {
	flags := agentFlags{healthz: "0.0.0.0:10256", metrics: "127.0.0.1:10249", agentAddress: agentPort, dns: true, announce: true, publish: agent.Publish{Folder: publish.DefaultFolder}}
	options := join.Options{Version: apiserver.KubernetesVersion}
	var systemd bool
	c := &cobra.Command{
		Use:   "join [https://ADDRESS:PORT --token-file FILE]",
		Short: "Make this machine a node of a cluster, and run its agent",
		Example: `  sudo fairway join https://192.0.2.10:6443                            # asks for the token
  echo abcdef.… | sudo fairway join https://192.0.2.10:6443 --token-file -
  sudo fairway join https://192.0.2.10:6443 --token-file /root/token --systemd   # keeps running
  sudo fairway join                                                    # runs again as what it is`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			node, err := flags.config()
			if err != nil {
				return err
			}
			slog.SetDefault(node.Log) // the libraries log where the agent does, and only errors
			if err := setLibraryLogs(0); err != nil {
				return err
			}
			if err := becomeMember(cmd.Context(), &options, args, node.NodeName); err != nil {
				return err
			}
			if systemd {
				return installAgentUnit(cmd, options.Dir)
			}
			defer sayStopping(cmd.Context(), cmd.OutOrStdout(), "agent and DNS end; the kernel goes on forwarding to the endpoints known now. To remove its rules: fairway leave")()
			return runMember(cmd.Context(), options.Dir, &flags, node)
		},
	}
	flags.addRunning(c.Flags())
	addTokenFlags(c.Flags(), &options.Token, "fairway token create")
	c.Flags().StringVar(&options.Dir, "data-dir", credentials.NodeDir, "where this machine's certificate is kept")
	c.Flags().BoolVar(&systemd, "systemd", false, "run the agent as a systemd unit, now and after each boot")
	return c
}

// becomeMember joins, or makes sure that the machine has joined before.
func becomeMember(ctx context.Context, o *join.Options, args []string, node string) error {
	if len(args) == 0 {
		_, err := join.Member(o.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			return errors.New("this machine hasn't joined a cluster: give the server and --token-file, as `fairway token create` prints them on a server")
		}
		return err
	}
	if o.Token == "" {
		var err error
		if o.Token, err = join.CredentialToken(); err == nil && o.Token == "" && join.IsTerminal(os.Stdin) {
			o.Token, err = join.ReadTokenFile("-", os.Stdin, os.Stderr)
		}
		if err != nil {
			return err
		}
	}
	if o.Token == "" {
		return errors.New("--token-file: not given; `fairway token create` on a server makes a token")
	}
	o.Server, o.Node = strings.TrimSuffix(args[0], "/"), node
	return join.Join(ctx, *o)
}

// runMember runs the agent of a machine that has joined, and renews its
// certificate.
func runMember(ctx context.Context, dir string, flags *agentFlags, node agent.Config) error {
	member, err := join.Member(dir)
	if err != nil {
		return err
	}
	if node.API, err = kube.Config(join.Kubeconfig(dir)); err != nil {
		return err
	}
	node.API.WarningHandler = kube.NewWarnings(node.Log)
	servers, err := balance.Attach(node.API, filepath.Join(dir, balance.FileName), node.Log)
	if err != nil {
		return err
	}
	node.NodeName, node.Register, node.TuneGC = member.Node, true, true
	node.KnownDir = dir
	flags.servePlainMachine(&node)
	settings, err := clusterSettings(ctx, node.API, filepath.Join(dir, "cluster.json"), node.Log)
	if err != nil {
		return err
	}
	node.Compile.ServiceCIDRs = settings.ServiceCIDRs
	if settings.DNS.IsValid() {
		if node.DNS = flags.dnsConfig(settings.DNS); node.DNS != nil {
			node.DNS.WatchPods = true
		}
	}
	client, err := kube.Client(node.API)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		servers.Run(ctx, client)
		return nil
	})
	group.Go(func() error { return join.Keep(ctx, dir, node.API, node.Log) })
	group.Go(func() error { return agent.Run(ctx, node) })
	return group.Wait()
}

// settings are what all agents of a cluster are told.
type settings struct {
	ServiceCIDRs []netip.Prefix
	DNS          netip.Addr // none if not valid
}

// clusterSettings asks the server, and remembers the answer in a file for a
// start while no server answers.
func clusterSettings(ctx context.Context, api *rest.Config, file string, log *slog.Logger) (*settings, error) {
	s, err := askSettings(ctx, api)
	if err == nil {
		data, err := json.Marshal(s)
		if err != nil {
			return nil, fmt.Errorf("encode settings of the cluster: %w", err)
		}
		if err := keptfile.Save(file, data, 0o600); err != nil {
			return nil, fmt.Errorf("remember settings of the cluster: %w", err)
		}
		return s, nil
	}
	s = &settings{}
	data, readErr := keptfile.Load(file)
	if readErr == nil {
		readErr = json.Unmarshal(data, s)
	}
	if readErr == nil {
		log.Warn("no server answers; continuing with the last known state of the cluster", "err", err)
		return s, nil
	}
	err = fmt.Errorf("ask for settings of the cluster: %w", err)
	if !errors.Is(readErr, fs.ErrNotExist) {
		err = errors.Join(err, keptfile.SetAside(file, readErr, log))
	}
	return nil, err
}

func askSettings(ctx context.Context, api *rest.Config) (*settings, error) {
	said := &firstWarning{}
	api = rest.CopyConfig(api)
	api.WarningHandler = said
	client, err := kube.Client(api)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cidrs, err := client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if err != nil && said.text != "" { // such as that the certificate was revoked
		return nil, errors.New(said.text)
	}
	if err != nil {
		return nil, err
	}
	s := &settings{}
	for _, c := range cidrs.Items {
		for _, text := range c.Spec.CIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("read ServiceCIDR %s: %w", c.Name, err)
			}
			s.ServiceCIDRs = append(s.ServiceCIDRs, p)
		}
	}
	service, err := client.CoreV1().Services(metav1.NamespaceSystem).Get(ctx, dns.ServiceName, metav1.GetOptions{})
	if err == nil {
		s.DNS, _ = netip.ParseAddr(service.Spec.ClusterIP) // a headless one is none
	}
	return s, nil
}

// firstWarning keeps what a server adds to its answer.
type firstWarning struct{ text string }

// HandleWarningHeader implements rest.WarningHandler.
func (w *firstWarning) HandleWarningHeader(_ int, _, text string) {
	if w.text == "" {
		w.text = text
	}
}
