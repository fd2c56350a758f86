// Package ownnode keeps the Node object and the Lease of a machine that has no kubelet.
//
// register.go creates the Node, about.go writes to it what runs there, heartbeat.go renews
// the Lease.
package ownnode

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/internal/logdedup"
)

// Node is the Node of a machine without a kubelet.
type Node struct {
	Client kubernetes.Interface
	Name   string       // of its Node
	About  func() About // what runs there now
	Log    *slog.Logger
}

// Keep registers the machine with its addresses whenever they change, and again whenever
// it is asked to: when its Node was deleted, or shall say something else. It returns when
// ctx is done.
func (m *Node) Keep(ctx context.Context, changed <-chan []netip.Addr, again <-chan struct{}) {
	var addresses []netip.Addr
	for {
		select {
		case <-ctx.Done():
			return
		case addresses = <-changed:
		case <-again:
			if addresses == nil {
				continue // not registered yet
			}
		}
		m.registerUntilAccepted(ctx, addresses)
	}
}

func (m *Node) registerUntilAccepted(ctx context.Context, addresses []netip.Addr) {
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 15 * time.Second}
	log := slog.New(logdedup.New(m.Log.Handler()))
	for {
		err := m.Register(ctx, addresses)
		if err == nil {
			return
		}
		pause := backoff.Step()
		log.Warn("this machine's Node could not be registered; trying again", "error", err, "retry-in", pause.Round(time.Millisecond))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// Register makes the Node object of the machine, or brings it up to date.
func (m *Node) Register(ctx context.Context, addresses []netip.Addr) error {
	nodes, name, about := m.Client.CoreV1().Nodes(), m.Name, m.About()
	node, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = nodes.Create(ctx, newNode(name), metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("register node %s: %w", name, err)
	}
	if node, err = about.annotate(ctx, nodes, node); err != nil {
		return fmt.Errorf("annotate node %s: %w", name, err)
	}
	status := nodeStatus(name, addresses)
	status.NodeInfo.KubeletVersion = about.kubeletVersion()
	if reflect.DeepEqual(node.Status.Addresses, status.Addresses) && len(node.Status.Conditions) > 0 &&
		node.Status.NodeInfo.KubeletVersion == status.NodeInfo.KubeletVersion {
		return nil
	}
	node.Status.Addresses, node.Status.Conditions, node.Status.NodeInfo = status.Addresses, status.Conditions, status.NodeInfo
	if _, err := nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("register addresses of node %s: %w", name, err)
	}
	return nil
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname:   name,
		corev1.LabelOSStable:   runtime.GOOS,
		corev1.LabelArchStable: runtime.GOARCH,
	}}}
}

func nodeStatus(name string, addresses []netip.Addr) corev1.NodeStatus {
	status := corev1.NodeStatus{
		NodeInfo: corev1.NodeSystemInfo{OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "AgentRunning",
			Message: "the Fairway agent programs this node", LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now(),
		}},
	}
	for _, a := range addresses {
		status.Addresses = append(status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	status.Addresses = append(status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	return status
}
