package apiserver

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TargetsPath is where Prometheus finds the machines' agents: service discovery by HTTP.
const TargetsPath = "/fairway/targets"

const (
	// metricsPort is where agents show their metrics, unless the request has another port.
	metricsPort    = "10249"
	targetsTimeout = 5 * time.Second
)

// targetGroup is what Prometheus scrapes, with the labels that it has.
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// targets lists the agents of all Nodes.
func (s *Server) targets(req *http.Request) (any, error) {
	if req.Method != http.MethodGet {
		return nil, refuse(http.StatusMethodNotAllowed, "%s: only GET is answered", req.Method)
	}
	port := cmp.Or(req.URL.Query().Get("port"), metricsPort)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, refuse(http.StatusBadRequest, "port %q: must be 1 to 65535", port)
	}
	client, err := kubernetes.NewForConfig(s.LoopbackConfig())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(req.Context(), targetsTimeout)
	defer cancel()
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	return targetsOf(nodes.Items, port), nil
}

// targetsOf are the agents of Nodes, each at the Node's first address.
func targetsOf(nodes []corev1.Node, port string) []targetGroup {
	list := []targetGroup{}
	for i := range nodes {
		for _, a := range nodes[i].Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
				list = append(list, targetGroup{[]string{net.JoinHostPort(ip.Unmap().String(), port)}, map[string]string{"instance": nodes[i].Name}})
				break
			}
		}
	}
	return list
}
