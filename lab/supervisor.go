package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/lab/deployment"
	"github.com/fairway-net/fairway/lab/kubelet"
	"github.com/fairway-net/fairway/lab/replicaset"
	"github.com/fairway-net/fairway/lab/scheduler"
	"github.com/fairway-net/fairway/lab/topology"
)

// startTimeout is how long a lab may take to come up, on a busy machine.
func (c Config) startTimeout() time.Duration {
	if c.Kubernetes != "" {
		return 6 * time.Minute
	}
	return 2 * time.Minute
}

// supervisor is a lab that comes up or runs in this process.
type supervisor struct {
	config Config
	net    *topology.Lab
	state  State
	group  *errgroup.Group
	api    *apiServer
}

// Run makes a lab and holds it until the context ends, then removes all of it.
// When the lab is up, ready is called. An error says why it could not come up or
// stay up; nothing is left then either.
func Run(ctx context.Context, config Config, ready func() error) (err error) {
	if err := errors.Join(config.Validate(), checkPrivileges()); err != nil {
		return err
	}
	if err := refuseSecond(config.Name); err != nil {
		return err
	}
	s := &supervisor{config: config}
	if s.net, err = topology.New(config.Name, topology.Options{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.net.Remove(), removeState(config.Name)) }()
	group, ctx := errgroup.WithContext(ctx)
	s.group = group
	group.Go(func() error {
		timeout := config.startTimeout()
		within, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("lab %s did not come up within %v", config.Name, timeout))
		defer cancel()
		if err := s.start(ctx, within); err != nil {
			if ctx.Err() == nil && within.Err() != nil {
				err = fmt.Errorf("%w: %w", context.Cause(within), err)
			}
			return err
		}
		return ready()
	})
	return group.Wait()
}

// start brings everything up: what runs on runs until ctx ends, what has to be
// waited for only until within does.
func (s *supervisor) start(ctx, within context.Context) error {
	if err := s.writeState(); err != nil {
		return err
	}
	var err error
	if s.api, err = startAPIServer(ctx, within, s); err != nil {
		return err
	}
	nodes, err := s.addNodes(within)
	if err != nil {
		return err
	}
	if err := s.startControllers(ctx, nodes); err != nil {
		return err
	}
	if err := s.startRouter(ctx, within, nodes); err != nil {
		return err
	}
	if err := s.startAgents(ctx, within, nodes); err != nil {
		return err
	}
	if s.config.Mode != NoMode {
		if err := s.writeModes(within, nodes); err != nil {
			return err
		}
	}
	s.startGateways(ctx, nodes)
	s.state.Ready = true
	return s.state.save()
}

// writeState makes the state directory, and joins the lab's cgroup, by which
// `down` finds this process after whatever happened to it.
func (s *supervisor) writeState() error {
	if err := os.MkdirAll(filepath.Join(Dir(s.config.Name), "pods"), 0o755); err != nil {
		return fmt.Errorf("create state directory: %w", err)
	}
	process, err := self()
	if err != nil {
		return fmt.Errorf("read the own process: %w", err)
	}
	s.state = State{Config: s.config, Supervisor: process, Started: time.Now()}
	if err := s.state.save(); err != nil {
		return err
	}
	dir, err := topology.Cgroup(s.config.Name, "supervisor")
	if errors.Is(err, cgroup.ErrNone) {
		slog.Warn("processes could not be grouped", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("join the lab's cgroup: %w", err)
	}
	return nil
}

// addNodes makes the nodes and their Node objects.
func (s *supervisor) addNodes(ctx context.Context) ([]*topology.Node, error) {
	var nodes []*topology.Node
	for i := 1; i <= s.config.Nodes; i++ {
		n, err := s.net.AddNode(NodeName(i))
		if err != nil {
			return nil, err
		}
		if err := registerNode(ctx, s.api.client, n, zone(i)); err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	services := s.config.ServiceCIDRs
	if !s.config.ClientSeesClusterIPs {
		services = nil
	}
	return nodes, routeClient(s.net.Client(), nodes, services)
}

// routeClient tells the outside client the way to Service addresses, which is
// through the first node, and the way back to pods, which reach it under their
// own addresses.
func routeClient(client *topology.Host, nodes []*topology.Node, services []netip.Prefix) error {
	for _, cidr := range services {
		via := nodes[0].IPv4()
		if cidr.Addr().Is6() {
			via = nodes[0].IPv6()
		}
		if err := client.Route(cidr, via); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		for i, cidr := range n.PodCIDRs {
			if err := client.Route(cidr, n.Addresses[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// startControllers runs what a cluster has besides Services: kubelets, a
// scheduler and the controllers of Deployments and ReplicaSets.
func (s *supervisor) startControllers(ctx context.Context, nodes []*topology.Node) error {
	client := s.api.client
	factory := informers.NewSharedInformerFactory(client, 0)
	k, err := kubelet.New(client, factory, recorder(ctx, client, "kubelet"), nodes, filepath.Join(Dir(s.config.Name), "pods"), s.config.files)
	if err != nil {
		return err
	}
	if err := s.serveKubelet(ctx, k); err != nil {
		return err
	}
	commands, err := s.config.commands()
	if err != nil {
		return err
	}
	k.SetImages(commands)
	sched, err := scheduler.New(client, factory, recorder(ctx, client, "default-scheduler"))
	if err != nil {
		return err
	}
	runs := []func(context.Context){k.Run, sched.Run}
	if s.config.Kubernetes == "" { // which has controllers of its own
		deployments, err := deployment.New(client, factory, recorder(ctx, client, "deployment-controller"))
		if err != nil {
			return err
		}
		sets, err := replicaset.New(client, factory, recorder(ctx, client, "replicaset-controller"))
		if err != nil {
			return err
		}
		runs = append(runs, deployments.Run, sets.Run)
	} else {
		runs = append(runs, k.Beat)
	}
	factory.Start(ctx.Done())
	for _, run := range runs {
		s.group.Go(func() error { run(ctx); return nil })
	}
	return nil
}

// recorder writes Events until the context ends.
func recorder(ctx context.Context, client kubernetes.Interface, component string) record.EventRecorder {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	context.AfterFunc(ctx, b.Shutdown)
	return b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
}

// poll tries until it succeeds or the context ends, and returns the last error.
func poll(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// pollHealth asks until the answer is that all is well.
func pollHealth(ctx context.Context, client *http.Client, url string) error {
	return poll(ctx, func() error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("health check says %s", resp.Status)
		}
		return nil
	})
}
