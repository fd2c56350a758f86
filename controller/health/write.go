package health

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/endpoint/check"
)

// The reasons of the Events on Services.
const (
	reasonHealthy   = "EndpointHealthy"
	reasonUnhealthy = "EndpointUnhealthy"
	reasonAllFailed = "AllEndpointsUnhealthy"
)

// write makes endpoints ready that are healthy, and those not that aren't. Where
// nothing is known, or if all failed and are to be kept, an endpoint is ready as
// its author says or as it was before.
func (c *Controller) write(ctx context.Context, wish check.Wish, slices []*discoveryv1.EndpointSlice, found judgement) error {
	for _, s := range slices {
		next := s.DeepCopy()
		changed := false
		each(next, wish, func(e *discoveryv1.Endpoint, addr netip.AddrPort) {
			switch found.verdicts[addr].Health {
			case check.Healthy:
				changed = check.SetReady(e, true) || changed
			case check.Unhealthy:
				changed = check.SetReady(e, found.allFailed && !wish.Drop) || changed
			}
		})
		if changed {
			check.MarkChecked(next, true)
			if err := c.update(ctx, next); err != nil {
				return err
			}
		}
	}
	return nil
}

// release gives endpoints back that are no longer checked: they are ready.
func (c *Controller) release(ctx context.Context, slices []*discoveryv1.EndpointSlice) error {
	for _, s := range slices {
		next := s.DeepCopy()
		if !check.MarkChecked(next, false) {
			continue
		}
		for i := range next.Endpoints {
			if check.Checkable(&next.Endpoints[i]) {
				check.SetReady(&next.Endpoints[i], true)
			}
		}
		if err := c.update(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) update(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	if _, err := c.cluster.Client.DiscoveryV1().EndpointSlices(s.Namespace).Update(ctx, s, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update EndpointSlice %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// reportChange writes Events about what has changed.
func (c *Controller) reportChange(service *corev1.Service, wish check.Wish, found judgement) {
	for _, ch := range found.changes {
		if ch.now.Health == check.Unhealthy {
			c.events.Eventf(service, corev1.EventTypeWarning, reasonUnhealthy, "endpoint %s gets no new connections: %s", ch.addr, ch.now.Reason)
		} else {
			c.events.Eventf(service, corev1.EventTypeNormal, reasonHealthy, "endpoint %s answers again", ch.addr)
		}
	}
	if found.failed {
		what := "all of them get traffic, as if there were no checks (fairway.dev/health-check-all-failed: keep)"
		if wish.Drop {
			what = "none of them gets traffic (fairway.dev/health-check-all-failed: drop)"
		}
		c.events.Eventf(service, corev1.EventTypeWarning, reasonAllFailed, "none of the %d checked endpoints is healthy; %s", len(found.verdicts), what)
	}
}
