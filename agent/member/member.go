// Package member is the agent of a machine that has joined a cluster of Fairway's: with the
// machine's own certificate, which it renews, and with any of the cluster's servers.
package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/dns"
	"github.com/fairway-net/fairway/internal/keptfile"
	"github.com/fairway-net/fairway/internal/latest"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/balance"
	"github.com/fairway-net/fairway/kube/join"
)

// Beside is what runs beside the agent, with the machine's access to the API.
type Beside func(ctx context.Context, dir string, servers *balance.Balancer, node agent.Config) error

// Run runs the agent of a machine that has joined, and renews its
// certificate. Beside is nil if nothing else runs.
func Run(ctx context.Context, dir string, role *config.Agent, node agent.Config, beside Beside) error {
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
	role.ServePlainMachine(&node)
	settings, err := clusterSettings(ctx, node.API, SettingsFile(dir), node.Log)
	if err != nil {
		return err
	}
	node.Compile.ServiceCIDRs = settings.ServiceCIDRs
	if settings.DNS.IsValid() {
		if node.DNS = role.ServeDNS(settings.DNS); node.DNS != nil {
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
	if beside != nil {
		node.Gone = &latest.Value[[]compile.Machine]{}
		group.Go(func() error { return beside(ctx, dir, servers, node) })
	}
	group.Go(func() error { return agent.Run(ctx, node) })
	return group.Wait()
}

// Settings are what all agents of a cluster are told.
type Settings struct {
	ServiceCIDRs []netip.Prefix
	DNS          netip.Addr // none if not valid
}

// SettingsFile is where they are remembered, in the folder of the machine's certificate.
func SettingsFile(dir string) string { return filepath.Join(dir, "cluster.json") }

// clusterSettings asks the server, and remembers the answer in a file for a
// start while no server answers.
func clusterSettings(ctx context.Context, api *rest.Config, file string, log *slog.Logger) (*Settings, error) {
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
	s = &Settings{}
	data, readErr := keptfile.Load(file)
	if readErr == nil {
		readErr = json.Unmarshal(data, s)
	}
	if readErr == nil {
		log.Warn("no server answers; continuing with the last known state of the cluster", "error", err)
		return s, nil
	}
	err = fmt.Errorf("ask for settings of the cluster: %w", err)
	if !errors.Is(readErr, fs.ErrNotExist) {
		err = errors.Join(err, keptfile.SetAside(file, readErr, log))
	}
	return nil, err
}

func askSettings(ctx context.Context, api *rest.Config) (*Settings, error) {
	said := &FirstWarning{}
	api = rest.CopyConfig(api)
	api.WarningHandler = said
	client, err := kube.Client(api)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cidrs, err := client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if err != nil && said.Text != "" { // such as that the certificate was revoked
		return nil, errors.New(said.Text)
	}
	if err != nil {
		return nil, err
	}
	s := &Settings{}
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

// FirstWarning keeps what a server adds to its answer.
type FirstWarning struct{ Text string }

// HandleWarningHeader implements rest.WarningHandler.
func (w *FirstWarning) HandleWarningHeader(_ int, _, text string) {
	if w.Text == "" {
		w.Text = text
	}
}
