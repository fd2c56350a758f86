//go:build !agentonly

package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// gatewayTimeout is how long it is waited until hosts are served.
	gatewayTimeout = 15 * time.Second
	// refusalTimeout is how long what serves hosts has to say what it doesn't do of them: its
	// Event may come after the address.
	refusalTimeout = 2 * time.Second
)

// errRefused says that hosts aren't served as they are asked for.
var errRefused = errors.New("the hosts aren't served so")

// awaitGateway waits until hosts are served, and returns at which addresses. What serves them may
// refuse, in an Event.
func awaitGateway(ctx context.Context, client kubernetes.Interface, i *networkingv1.Ingress, since time.Time, out io.Writer) (at []string, err error) {
	wait := waiter{gatewayTimeout, "the gateway to serve the hosts", out}
	served := time.Time{}
	_, err = wait.until(ctx, func(ctx context.Context) (bool, error) {
		have, err := client.NetworkingV1().Ingresses(i.Namespace).Get(ctx, i.Name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("read the hosts' addresses: %w", err)
		}
		if at = at[:0]; served.IsZero() && len(have.Status.LoadBalancer.Ingress) > 0 {
			served = time.Now()
		}
		for _, l := range have.Status.LoadBalancer.Ingress {
			at = append(at, cmp.Or(l.IP, l.Hostname))
		}
		if why := refusal(ctx, client, have, since); why != "" {
			return false, fmt.Errorf("%w: %s", errRefused, why)
		}
		return !served.IsZero() && time.Since(served) >= refusalTimeout, nil
	})
	return at, err
}

// refusal is what a warning says about an Ingress since then; "" if there is none.
func refusal(ctx context.Context, client kubernetes.Interface, i *networkingv1.Ingress, since time.Time) string {
	list, err := client.CoreV1().Events(i.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "type=Warning,involvedObject.kind=Ingress,involvedObject.name=" + i.Name,
	})
	if err != nil {
		return "" // who may not read Events isn't told
	}
	var said []string
	for _, e := range list.Items {
		isOld := e.LastTimestamp.Time.Before(since.Truncate(time.Second))
		if !isOld && e.Type == corev1.EventTypeWarning && (e.Reason == "Refused" || e.Reason == "Conflict") {
			said = append(said, strings.TrimSpace(e.Message))
		}
	}
	return strings.Join(said, "; ")
}
