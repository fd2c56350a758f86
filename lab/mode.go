package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab/topology"
)

// modeAnnotation, on a Node, is the data plane that its agent ran when the lab had
// come up. Agents of plain machines, which run no pods, write another one.
const modeAnnotation = "fairway.dev/lab-mode"

// unknownMode stands for the mode of an agent that doesn't answer.
const unknownMode = "-"

// modeInUse is the data plane that a node's agent says it runs; "-" if there is
// no agent that answers. An agent with --mode auto has chosen one.
func modeInUse(ctx context.Context, lab, node string) string {
	ns, err := netns.Open(topology.HostNamespace(lab, node))
	if err != nil {
		return unknownMode
	}
	defer ns.Close()
	host := topology.Host{Name: node, NS: ns}
	mode, err := askMode(ctx, &host)
	if err != nil {
		slog.Debug("the agent could not be asked for its mode", "node", node, "error", err)
		return unknownMode
	}
	return mode
}

// askMode asks the agent of a node, at the address that kube-proxy answers at.
func askMode(ctx context.Context, node *topology.Host) (string, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: node.DialContext, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10249/proxyMode", nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 100))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("it answers %s", resp.Status)
	}
	return strings.TrimSpace(string(text)), nil
}

// writeModes notes on the Node objects which data plane the agents run. An agent
// that has been told not to say so is no error.
func (s *supervisor) writeModes(ctx context.Context, nodes []*topology.Node) error {
	for _, n := range nodes {
		mode, err := askMode(ctx, n.Host)
		if err != nil {
			slog.Info("the agent could not be asked for its mode", "node", n.Name, "error", err)
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{modeAnnotation: mode}}})
		if err != nil {
			return fmt.Errorf("encode the mode of node %s: %w", n.Name, err)
		}
		if _, err := s.api.client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("write the mode of node %s: %w", n.Name, err)
		}
	}
	return nil
}

// WriteWelcome says that a lab is up, in which mode and after which time, and
// which commands come next.
func WriteWelcome(ctx context.Context, w io.Writer, name string) error {
	s, err := Load(name)
	if err != nil {
		return err
	}
	mode := s.Config.Mode
	if mode != NoMode {
		if inUse := modeInUse(ctx, name, NodeName(1)); inUse != unknownMode {
			mode = inUse
		}
	}
	option := ""
	if name != DefaultName {
		option = " --name " + name
	}
	note := ""
	if !s.Config.ClientSeesClusterIPs {
		note = "\nThe client is outside: it reaches node ports and load balancer addresses, and no cluster IPs (lab up --" + ClientRouteFlag + " gives it a route)."
	}
	took := time.Since(s.Started).Round(10 * time.Millisecond)
	_, err = fmt.Fprintf(w, `lab %q is up: %d nodes, mode %s, after %v; use it with
  export KUBECONFIG=%s
  fairway lab kubectl%s get nodes -o wide
  fairway lab exec%s client -- ip route
  fairway lab status --name %s%s
`, name, s.Config.Nodes, mode, took, Kubeconfig(name), option, option, name, note)
	return err
}
