package lab

import (
	"context"
	"time"

	"github.com/fairway-net/fairway/lab/topology"
)

// startGateways keeps an engine running on every node, if that is asked for. It
// reads Secrets, which a node's credential can't.
func (s *supervisor) startGateways(ctx context.Context, nodes []*topology.Node) {
	if !s.config.Gateway {
		return
	}
	for _, n := range nodes {
		r := &role{
			lab: s.config.Name, name: "gateway-" + n.Name, cgroup: n.Name + "/agent", start: n.StartPowered,
			args: func() []string {
				args := []string{
					"gateway", "--kubeconfig", s.api.nodeKubeconfig, "--node-name", n.Name,
					"--shutdown-delay", "0s", "--drain-timeout", "2s", // nobody waits for a lab to end
				}
				if s.config.GatewayEngine != "" {
					args = append(args, "--engine", s.config.GatewayEngine)
				}
				return args
			},
		}
		began := time.Now()
		s.group.Go(func() error {
			return r.run(ctx, func() bool { return time.Since(began) > 5*time.Second })
		})
	}
}
