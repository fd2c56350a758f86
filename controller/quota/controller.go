// Package quota says in the status of each ResourceQuota what of it is counted and how
// much is in use. The server itself counts what is created, and refuses what is too much;
// this controller counts anew what there is, so that what was deleted makes room. What
// isn't counted here is left out of status.hard, and an Event names it.
package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/controller/cluster"
)

const (
	// Name is the controller's in kube-controller-manager.
	Name = "resourcequota-controller"
	// NotCounted is the reason of the Event about what a quota asks and nobody counts.
	NotCounted = "NotCounted"

	lookPeriod = 2 * time.Second
	// settleTime is how long what was admitted may take to be stored. Until a quota has
	// been left alone for so long, no room is made in it, unless its user waits already
	// for longestWait.
	settleTime  = lookPeriod
	longestWait = 30 * time.Second
)

// Count returns what of a quota is counted, with its limits, and how much is in use.
type Count func(ctx context.Context, q *corev1.ResourceQuota) (hard, used corev1.ResourceList, err error)

// Controller looks at all quotas now and then.
type Controller struct {
	client    kubernetes.Interface
	informers cluster.Informers
	quotas    corelisters.ResourceQuotaLister
	count     Count
	events    record.EventRecorder
	log       *slog.Logger
	now       func() time.Time
	seen      map[types.UID]*seen
}

// seen is what the last looks found at a quota.
type seen struct {
	version string
	since   time.Time // this version has been there
	shrinks time.Time // what is in use has been less than the status says; zero if it isn't
	said    string    // in an Event
}

// New returns the controller; without count it leaves quotas alone.
func New(client kubernetes.Interface, count Count, events record.EventRecorder, log *slog.Logger) (*Controller, error) {
	c := &Controller{client: client, count: count, events: events, log: log, now: time.Now, seen: map[types.UID]*seen{}}
	quotas := c.informers.Of(client, nil).Core().V1().ResourceQuotas()
	c.quotas = quotas.Lister()
	// The first look has all of them.
	if err := c.informers.Handle(quotas.Informer(), cache.ResourceEventHandlerFuncs{}); err != nil {
		return nil, fmt.Errorf("watch ResourceQuotas: %w", err)
	}
	return c, nil
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) {
	if c.count == nil {
		return
	}
	c.informers.Run(ctx, func() { c.lookAgain(ctx) })
}

func (c *Controller) lookAgain(ctx context.Context) {
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		if err := c.look(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("ResourceQuotas could not be updated; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (c *Controller) look(ctx context.Context) error {
	quotas, err := c.quotas.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list ResourceQuotas: %w", err)
	}
	there := map[types.UID]*seen{}
	var errs []error
	for _, q := range quotas {
		s := c.seen[q.UID]
		if s == nil {
			s = &seen{}
		}
		there[q.UID] = s
		if s.version != q.ResourceVersion {
			s.version, s.since = q.ResourceVersion, c.now()
		}
		if err := c.sync(ctx, q, s); err != nil {
			errs = append(errs, fmt.Errorf("ResourceQuota %s/%s: %w", q.Namespace, q.Name, err))
		}
	}
	c.seen = there
	return errors.Join(errs...)
}

// sync writes a quota's status.
func (c *Controller) sync(ctx context.Context, q *corev1.ResourceQuota, s *seen) error {
	hard, used, err := c.count(ctx, q)
	if err != nil {
		return err
	}
	c.say(q, hard, s)
	if equality.Semantic.DeepEqual(hard, q.Status.Hard) && equality.Semantic.DeepEqual(used, q.Status.Used) {
		s.shrinks = time.Time{}
		return nil
	}
	if makesRoom(used, q.Status.Used) && equality.Semantic.DeepEqual(hard, q.Status.Hard) {
		if s.shrinks.IsZero() {
			s.shrinks = c.now()
		}
		if c.now().Sub(s.since) < settleTime && c.now().Sub(s.shrinks) < longestWait {
			return nil // what was just admitted may not be stored yet
		}
	}
	changed := q.DeepCopy()
	changed.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: used}
	_, err = c.client.CoreV1().ResourceQuotas(q.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the next look sees it
	}
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	s.shrinks = time.Time{}
	return nil
}

// makesRoom reports whether less of something is in use than was.
func makesRoom(used, was corev1.ResourceList) bool {
	for name, n := range used {
		if before, ok := was[name]; ok && n.Cmp(before) < 0 {
			return true
		}
	}
	return false
}

// say has an Event name what isn't counted, once for each change of that.
func (c *Controller) say(q *corev1.ResourceQuota, hard corev1.ResourceList, s *seen) {
	var not []string
	for name := range q.Spec.Hard {
		if _, ok := hard[name]; !ok {
			not = append(not, string(name))
		}
	}
	slices.Sort(not)
	text := strings.Join(not, ", ")
	if text != "" && text != s.said {
		c.events.Eventf(q, corev1.EventTypeWarning, NotCounted, "not counted here, and not limited: %s", text)
	}
	s.said = text
}
