package doctor

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairway-net/fairway/diagnose/explain"
)

// checkAddress finds FW109 where an address is asked about: no Service has it, or none
// serves its port, so that nodes refuse packets to it or let them pass.
func checkAddress(e *Evidence) []Finding {
	if e.Report == nil || !e.Question.Target.Addr.IsValid() || e.Objects.Owner(e.Question.Target.Addr) != nil {
		return nil
	}
	for _, v := range e.Report.Views {
		for _, d := range v.Decisions {
			if d.Service != "" {
				return nil // a node port, for instance
			}
		}
	}
	return []Finding{{Code: NoSuchService, Grade: Proved, What: fmt.Sprintf("no Service has the address %s", e.Question.Target.Addr)}}
}

// checkService finds FW109.
func checkService(_ context.Context, e *Evidence) []Finding {
	if e.Service != nil {
		return nil
	}
	if e.Question.Target.Name == "" {
		return checkAddress(e)
	}
	what := fmt.Sprintf("there is no Service %s/%s", e.Question.Target.Namespace, e.Question.Target.Name)
	if similar := e.Objects.Similar(e.Question.Target.Namespace, e.Question.Target.Name); similar != "" {
		what += "; did you mean " + similar + "?"
	}
	return []Finding{{Code: NoSuchService, Grade: Proved, What: what}}
}

// checkSelector finds FW101.
func checkSelector(_ context.Context, e *Evidence) []Finding {
	s := e.Service
	if len(s.Spec.Selector) == 0 || len(e.Objects.SelectedPods(s)) > 0 {
		return nil
	}
	if w, scaled := e.scaled(); scaled {
		return []Finding{{Code: SelectorMatchesNoPod, Grade: Note, What: fmt.Sprintf("%s %s is scaled to 0 replicas: the Service has no pod, as it should", w.Kind, w.Name)}}
	}
	what := fmt.Sprintf("selector %s matches no pod in namespace %s", explain.SelectorText(s.Spec.Selector), s.Namespace)
	if n, ok := e.Objects.NearestSelector(s); ok {
		what += fmt.Sprintf("; %s=%s would match %d", n.Key, n.Want, n.Matches)
	}
	return []Finding{{Code: SelectorMatchesNoPod, Grade: Proved, What: what}}
}

// scaled is a workload whose pods the Service would select, and that should have none now.
func (e *Evidence) scaled() (w Workload, found bool) {
	if e.Service == nil || len(e.Service.Spec.Selector) == 0 || len(e.Objects.SelectedPods(e.Service)) > 0 {
		return w, false
	}
	selector := labels.SelectorFromSet(e.Service.Spec.Selector)
	i := slices.IndexFunc(e.Scaled, func(w Workload) bool { return selector.Matches(labels.Set(w.Labels)) })
	if i < 0 {
		return w, false
	}
	return e.Scaled[i], true
}

// checkReady finds FW102.
func checkReady(_ context.Context, e *Evidence) []Finding {
	if e.Objects.NoSlices != "" {
		return e.readyInForce()
	}
	s := e.Service
	if s.Spec.Type == corev1.ServiceTypeExternalName || s.Spec.PublishNotReadyAddresses {
		return nil
	}
	total, ready, serving := 0, 0, 0
	for _, slice := range e.Objects.SlicesOf(s) {
		for _, endpoint := range slice.Endpoints {
			total++
			c := endpoint.Conditions
			switch {
			case c.Ready == nil || *c.Ready:
				ready++
			case c.Serving != nil && *c.Serving && c.Terminating != nil && *c.Terminating:
				serving++
			}
		}
	}
	switch {
	case ready > 0:
		return nil
	case serving > 0:
		return []Finding{{Code: NoEndpointReady, Grade: Note, What: fmt.Sprintf("all %d endpoints are ending; %d still serve", total, serving)}}
	case total == 0 && len(s.Spec.Selector) == 0:
		return []Finding{{Code: NoEndpointReady, Grade: Proved, What: "the Service has no selector, and no EndpointSlice lists endpoints for it"}}
	case total == 0 && e.Objects.NoPods != "":
		return []Finding{{Code: NoEndpointReady, Grade: Likely, What: "no EndpointSlice lists an endpoint; whether the selector matches pods isn't known"}}
	case total == 0:
		if _, scaled := e.scaled(); scaled {
			return nil // which is said
		}
		return []Finding{{Code: NoEndpointReady, Grade: Proved, What: "no EndpointSlice lists an endpoint, though pods are selected: they have no address yet, or the endpoint slice controller doesn't run"}}
	}
	what := fmt.Sprintf("none of %d endpoints is ready", total)
	if i := slices.IndexFunc(e.reportEndpoints(), func(p explain.Endpoint) bool { return p.Detail != "" }); i >= 0 {
		p := e.reportEndpoints()[i]
		what += fmt.Sprintf(": pod %s %s", p.Pod, p.Detail)
	}
	return []Finding{{Code: NoEndpointReady, Grade: Proved, What: what}}
}

func (e *Evidence) reportEndpoints() []explain.Endpoint {
	if e.Report == nil {
		return nil
	}
	return e.Report.Endpoints
}

// checkLoadBalancer finds FW116.
func checkLoadBalancer(_ context.Context, e *Evidence) []Finding {
	s := e.Service
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) > 0 {
		return nil
	}
	what := "status.loadBalancer is empty"
	if s.Spec.LoadBalancerClass != nil {
		what += "; the Service waits for a load balancer of class " + *s.Spec.LoadBalancerClass
	}
	return []Finding{{Code: LoadBalancerPending, Grade: Proved, What: what}}
}
