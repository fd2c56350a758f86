package addresses

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/internal/queue"
	"github.com/fairway-net/fairway/kube"
)

// ReasonNotAnnounced is that of Events about an address that no node announces: what doctor calls
// FW131.
const ReasonNotAnnounced = "NotAnnounced"

// announced follows which Services nodes announce, by the objects in which they say so.
type announced struct {
	services *queue.Queue[types.NamespacedName]
	grace    time.Duration // that nodes have to announce a Service that has an address

	mu   sync.Mutex
	by   map[types.NamespacedName]map[string]bool // objects that say so, by Service
	of   map[string]types.NamespacedName          // the Service of each object
	told map[types.NamespacedName]string          // the addresses that an Event was written of
}

// watchAnnounced has an Event written on each Service whose address from a pool no node announces
// for a while.
func (c *Controller) watchAnnounced(ctx context.Context) {
	a := &announced{grace: cmp.Or(c.options.AnnounceGrace, 30*time.Second), by: map[types.NamespacedName]map[string]bool{}, of: map[string]types.NamespacedName{}, told: map[types.NamespacedName]string{}}
	a.services = queue.New(c.log, func(_ context.Context, key types.NamespacedName) error { return c.lookAnnounced(a, key) })
	c.announced.Store(a)
	var complete, watches sync.WaitGroup
	complete.Add(2)
	watches.Go(func() { followStatuses[*v1beta1.ServiceL2Status](ctx, c, a, "servicel2statuses", complete.Done) })
	watches.Go(func() { followStatuses[*v1beta1.ServiceBGPStatus](ctx, c, a, "servicebgpstatuses", complete.Done) })
	watches.Go(func() {
		known := make(chan struct{})
		go func() { complete.Wait(); close(known) }()
		select {
		case <-ctx.Done():
		case <-known:
			c.eachService(func(s *corev1.Service) { c.awaitAnnounced(s) })
		}
		a.services.Run(ctx, 1)
	})
	watches.Wait()
}

func followStatuses[T interface {
	runtime.Object
	metav1.Object
}](ctx context.Context, c *Controller, a *announced, resource string, complete func()) {
	var once sync.Once
	defer once.Do(complete)
	kube.Watch(ctx, kube.Source{Client: c.metallb.V1beta1, Resource: resource, Namespace: c.options.Namespace}, kube.Sink[T]{
		Set: func(o T) {
			a.set(resource+"/"+o.GetName(), types.NamespacedName{Namespace: o.GetLabels()[v1beta1.LabelServiceNamespace], Name: o.GetLabels()[v1beta1.LabelServiceName]})
		},
		Delete: func(key types.NamespacedName) { a.delete(resource + "/" + key.Name) },
		Synced: func() { once.Do(complete) },
	})
}

// awaitAnnounced has a Service looked at once nodes have had the time to announce it.
func (c *Controller) awaitAnnounced(s *corev1.Service) {
	if a := c.announced.Load(); a != nil && s.Annotations[v1beta1.AnnotationFromPool] != "" {
		a.services.AddAfter(types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, a.grace)
	}
}

func (a *announced) set(object string, service types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by[service] == nil {
		a.by[service] = map[string]bool{}
	}
	a.by[service][object], a.of[object] = true, service
	delete(a.told, service)
}

func (a *announced) delete(object string) {
	a.mu.Lock()
	service := a.of[object]
	delete(a.of, object)
	if delete(a.by[service], object); len(a.by[service]) == 0 {
		delete(a.by, service)
	}
	a.mu.Unlock()
	a.services.AddAfter(service, a.grace)
}

// mayBeTold reports whether an Event is due of addresses that no node announces, and notes it.
func (a *announced) mayBeTold(service types.NamespacedName, addresses string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.by[service]) > 0 || a.told[service] == addresses {
		return false
	}
	a.told[service] = addresses
	return true
}

// lookAnnounced looks at one Service, some time after it got an address or was announced last.
func (c *Controller) lookAnnounced(a *announced, key types.NamespacedName) error {
	s, err := c.cluster.Services.Services(key.Namespace).Get(key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get Service %s: %w", key, err)
	}
	var addresses []string
	if err == nil && s.DeletionTimestamp == nil && s.Annotations[v1beta1.AnnotationFromPool] != "" {
		for _, in := range s.Status.LoadBalancer.Ingress {
			addresses = append(addresses, in.IP)
		}
	}
	if len(addresses) == 0 {
		a.mu.Lock()
		delete(a.told, key)
		a.mu.Unlock()
		return nil
	}
	if text := strings.Join(addresses, ", "); a.mayBeTold(key, text) {
		c.recorder.Eventf(s, corev1.EventTypeWarning, ReasonNotAnnounced, "no node announces %s: nobody outside gets there. `fairway doctor svc/%s -n %s` says why not, of each node", text, s.Name, s.Namespace)
	}
	return nil
}
