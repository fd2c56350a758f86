package lab

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fairway-net/fairway/lab/topology"
)

// startAgents starts the nodes' agents and waits for them.
func (s *supervisor) startAgents(ctx, within context.Context, nodes []*topology.Node) error {
	if s.config.Mode == NoMode {
		return nil
	}
	serving := make([]atomic.Bool, len(nodes))
	for i, n := range nodes {
		if err := s.startAgent(ctx, n, &serving[i]); err != nil {
			return err
		}
	}
	for i, n := range nodes {
		if err := waitAgent(within, n); err != nil {
			log := filepath.Join(Dir(s.config.Name), agentRole(n)+".log")
			return fmt.Errorf("%w\nits log ends with:\n%s", err, lastLines(log, 20))
		}
		serving[i].Store(true)
	}
	return nil
}

func agentRole(n *topology.Node) string { return "agent-" + n.Name }

// startAgent keeps a node's agent running. One that ends at once, without having served, ends the lab.
func (s *supervisor) startAgent(ctx context.Context, n *topology.Node, served *atomic.Bool) error {
	args, err := s.agentArgs(n)
	if err != nil {
		return err
	}
	r := &role{
		lab: s.config.Name, name: agentRole(n), cgroup: n.Name + "/agent",
		start: n.StartPowered, args: func() []string { return args },
	}
	began := time.Now()
	s.group.Go(func() error {
		return r.run(ctx, func() bool { return served.Load() || time.Since(began) > 5*time.Second })
	})
	return nil
}

// agentArgs is the command line of a node's agent.
func (s *supervisor) agentArgs(n *topology.Node) ([]string, error) {
	args := []string{"agent", "--mode", s.config.Mode, "--state-dir", filepath.Join(Dir(s.config.Name), n.Name)}
	// Of the node's sockets, those of its pods included.
	if cgroup, err := topology.FindCgroup(s.config.Name, n.Name); err == nil {
		args = append(args, "--cgroup", cgroup)
	}
	if s.config.Kubernetes != "" { // as kube-proxy is started
		config, err := WriteProxyConfiguration(s.config.Name, n.Name, "")
		if err != nil {
			return nil, err
		}
		return append(append(args, "--config", config, "--hostname-override", n.Name), s.config.AgentArgs...), nil
	}
	pods := topology.DefaultOptions()
	kubeconfig, err := s.writeNodeKubeconfig(n.Name)
	if err != nil {
		return nil, err
	}
	args = append(args, "--kubeconfig", kubeconfig, "--node-name", n.Name,
		"--cluster-cidr", pods.Pods4.String(), "--cluster-cidr", pods.Pods6.String())
	for _, cidr := range texts(s.config.ServiceCIDRs) {
		args = append(args, "--service-cidr", cidr)
	}
	// The lab has no way out, so there is no upstream to ask.
	args = append(args, "--announce", "--dns", "--dns-watch-pods", "--resolv-conf", "", "--cluster-dns", s.config.clusterDNS().String())
	return append(args, s.config.AgentArgs...), nil
}

// waitAgent waits until the node's agent says that it has programmed the kernel.
func waitAgent(ctx context.Context, n *topology.Node) error {
	client := http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}}
	if err := pollHealth(ctx, &client, "http://127.0.0.1:10256/healthz"); err != nil {
		return fmt.Errorf("wait for the agent of %s: %w", n.Name, err)
	}
	return nil
}
