// Package reach finds the agents of nodes elsewhere with the user's own credentials, and
// asks them: in Kubernetes by pods/exec of `fairway agent-connect` in the agent's pod, and
// on machines of Fairway's own API server by nodes/NAME/proxy.
//
//   - reach.go: which nodes there are, and by which way each is reached
//   - exec.go: connections through pods/exec
package reach

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/diagnose/agentlink"
)

// Agents asks the agents of nodes.
type Agents struct {
	Config *rest.Config // the user's
	Client kubernetes.Interface
}

// AgentPods are the labels of agents' pods.
const AgentPods = "app.kubernetes.io/name=fairway,app.kubernetes.io/component=proxy"

// portAnnotation, on a Node, says that its agent answers Fairway's API servers.
const portAnnotation = "fairway.dev/agent-port"

// All are the agents of all nodes but some. One that doesn't answer is in the list with
// the reason, and its node. The error says that nodes can't be listed.
func (a Agents) All(ctx context.Context, but func(node string) bool) ([]agentlink.Found, error) {
	nodes, err := a.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	var list []agentlink.Found
	var left []corev1.Node
	for _, n := range nodes.Items {
		if !but(n.Name) {
			left = append(left, n)
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	own := a.ownServer()
	pods, noPods := a.pods(ctx)
	for _, n := range left {
		found := agentlink.Found{Node: n.Name}
		_, answers := n.Annotations[portAnnotation]
		pod, there := pods[n.Name]
		switch {
		case there:
			found.Client, found.Err = a.byExec(pod)
		case answers || own:
			found.Client, found.Err = a.byProxy(n.Name)
		case noPods != nil:
			found.Err = noPods
		default:
			continue // a node of another proxy, or without one
		}
		list = append(list, found)
	}
	agentlink.AskAll(ctx, list)
	slices.SortFunc(list, func(a, b agentlink.Found) int { return cmp.Compare(a.Node, b.Node) })
	return list, nil
}

// ownServer reports whether the API server is Fairway's, which asks agents for its users.
func (a Agents) ownServer() bool {
	version, err := a.Client.Discovery().ServerVersion()
	return err == nil && strings.HasSuffix(version.GitVersion, "+fairway")
}

// pods are the running pods of agents, by node.
func (a Agents) pods(ctx context.Context) (map[string]*corev1.Pod, error) {
	list, err := a.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: AgentPods, ResourceVersion: "0"})
	if apierrors.IsForbidden(err) { // who may read them where they usually are
		list, err = a.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: AgentPods, ResourceVersion: "0"})
	}
	if err != nil {
		return nil, fmt.Errorf("find the agents' pods: %w", err)
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		if p := &list.Items[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			pods[p.Spec.NodeName] = p
		}
	}
	return pods, nil
}

// byProxy asks by way of the API server.
func (a Agents) byProxy(node string) (*agentlink.Client, error) {
	through, err := rest.TransportFor(a.Config)
	if err != nil {
		return nil, fmt.Errorf("ask the agent of node %s: %w", node, err)
	}
	at, _, err := rest.DefaultServerUrlFor(a.Config)
	if err != nil {
		return nil, fmt.Errorf("ask the agent of node %s: %w", node, err)
	}
	base := strings.TrimSuffix(at.String(), "/") + "/api/v1/nodes/" + url.PathEscape(node) + "/proxy"
	return agentlink.Elsewhere("node "+node, through, base), nil
}

// byExec asks by a command in the agent's pod, whose input and output is the
// connection.
func (a Agents) byExec(pod *corev1.Pod) (*agentlink.Client, error) {
	container := containerOf(pod)
	d := &dialer{config: a.Config, client: a.Client.CoreV1().RESTClient(), pod: pod, container: container}
	// One connection serves several requests: each is a process in the pod.
	transport := &http.Transport{DialContext: d.dial, MaxConnsPerHost: 4, IdleConnTimeout: idle}
	return agentlink.OverSocket("pod "+pod.Namespace+"/"+pod.Name, transport), nil
}

// containerOf is the agent's container.
func containerOf(pod *corev1.Pod) string {
	for _, c := range pod.Spec.Containers {
		if c.Name == "fairway" {
			return c.Name
		}
	}
	return pod.Spec.Containers[0].Name
}
