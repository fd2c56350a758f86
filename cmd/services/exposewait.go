//go:build !agentonly

package services

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/diagnose/collect"
)

const (
	// poolTimeout is how long a server that has just started is given to make
	// the pool of --load-balancer-range.
	poolTimeout = 20 * time.Second
	// youth is the age of a cluster up to which a pool may still come.
	youth = time.Minute
	// addressTimeout is how long a LoadBalancer's address is waited for.
	addressTimeout = 30 * time.Second
	// sayAfter is after how long it is said what is waited for.
	sayAfter = time.Second
	askAgain = 200 * time.Millisecond
)

// waiter asks again and again, and says what for if that takes long.
type waiter struct {
	timeout time.Duration
	what    string // "a pool", say
	out     io.Writer
}

// until asks until done says so; false is that time is up.
func (w waiter) until(ctx context.Context, done func(context.Context) (bool, error)) (bool, error) {
	began, said := time.Now(), false
	for {
		ok, err := done(ctx)
		if ok || err != nil {
			return ok, err
		}
		waited := time.Since(began)
		if waited >= w.timeout {
			return false, nil
		}
		if waited >= sayAfter && !said {
			said = true
			fmt.Fprintf(w.out, "waiting up to %s for %s\n", w.timeout, w.what)
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(askAgain):
		}
	}
}

// usualType is LoadBalancer where a Service gets an address from a pool: people
// with a few machines want to be reached from outside. A cluster that is only
// seconds old is given the time to make its pool.
func usualType(ctx context.Context, source *collect.Source, out io.Writer) corev1.ServiceType {
	client, err := source.Client()
	if err != nil {
		return corev1.ServiceTypeClusterIP
	}
	wait := waiter{poolTimeout, "the pool of load balancer addresses of a server that has just started (--type ClusterIP doesn't wait)", out}
	found := false
	_, err = wait.until(ctx, func(ctx context.Context) (bool, error) {
		found = some(ctx, client, "ipaddresspools", "")
		return found || some(ctx, client, "configurationstates", "controller") || !isNewCluster(ctx, client), nil
	})
	if err != nil || !found && !some(ctx, client, "ipaddresspools", "") {
		return corev1.ServiceTypeClusterIP
	}
	return corev1.ServiceTypeLoadBalancer
}

// some reports whether there are objects of MetalLB's API, of a name or of any.
// A user who may not read them sees none. The controller of addresses writes a
// ConfigurationState of the name controller once it knows the pools.
func some(ctx context.Context, client kubernetes.Interface, resource, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	data, err := client.Discovery().RESTClient().Get().AbsPath("/apis/metallb.io/v1beta1/" + resource).DoRaw(ctx)
	var list metav1.PartialObjectMetadataList
	if err != nil || json.Unmarshal(data, &list) != nil {
		return false
	}
	return slices.ContainsFunc(list.Items, func(o metav1.PartialObjectMetadata) bool { return name == "" || o.Name == name })
}

// isNewCluster reports whether the cluster was made just now.
func isNewCluster(ctx context.Context, client kubernetes.Interface) bool {
	n, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && time.Since(n.CreationTimestamp.Time) < youth
}

// awaitAddress waits for a LoadBalancer's address, and returns the Service as it
// is then, and why it has none.
func awaitAddress(ctx context.Context, client kubernetes.Interface, s *corev1.Service, out io.Writer) (*corev1.Service, string, error) {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.Spec.LoadBalancerClass != nil {
		return s, "", nil
	}
	wait := waiter{addressTimeout, "a load balancer address", out}
	ok, err := wait.until(ctx, func(ctx context.Context) (bool, error) {
		next, err := client.CoreV1().Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("read the Service's address: %w", err)
		}
		s = next
		return len(s.Status.LoadBalancer.Ingress) > 0, nil
	})
	if ok || err != nil {
		return s, "", err
	}
	return s, whyNoAddress(ctx, client, s), nil
}

// whyNoAddress is the latest warning about a Service.
func whyNoAddress(ctx context.Context, client kubernetes.Interface, s *corev1.Service) string {
	list, err := client.CoreV1().Events(s.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "type=Warning,involvedObject.kind=Service,involvedObject.name=" + s.Name,
	})
	latest, why := time.Time{}, "nobody gives one: has the server --load-balancer-range? `fairway status` may say more"
	if err != nil {
		return why
	}
	for _, e := range list.Items {
		if e.LastTimestamp.After(latest) {
			latest, why = e.LastTimestamp.Time, e.Message
		}
	}
	return strings.TrimSpace(why)
}
