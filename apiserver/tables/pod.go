package tables

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Pods prints Pods.
func Pods() rest.TableConvertor {
	return of(func(p *corev1.Pod) []any {
		ready, restarts := 0, int32(0)
		for _, c := range p.Status.ContainerStatuses {
			restarts += c.RestartCount
			if c.Ready && c.State.Running != nil {
				ready++
			}
		}
		ip := p.Status.PodIP
		if len(p.Status.PodIPs) > 0 {
			ip = p.Status.PodIPs[0].IP
		}
		return []any{
			p.Name, fmt.Sprintf("%d/%d", ready, len(p.Spec.Containers)), podStatus(p), strconv.Itoa(int(restarts)), age(p.CreationTimestamp),
			or(ip, none), or(p.Spec.NodeName, none), or(p.Status.NominatedNodeName, none), readinessGates(p),
		}
	}, column("Name", "string"), column("Ready", "string"), column("Status", "string"), column("Restarts", "string"), column("Age", "string"),
		wide("IP", "string"), wide("Node", "string"), wide("Nominated Node", "string"), wide("Readiness Gates", "string"))
}

// podStatus sums a Pod up in a word: what is wrong with a container before
// the phase, and that it is going before everything.
func podStatus(p *corev1.Pod) string {
	status := or(p.Status.Reason, string(p.Status.Phase))
	running := false
	for _, c := range p.Status.ContainerStatuses {
		switch state := c.State; {
		case state.Waiting != nil && state.Waiting.Reason != "":
			status = state.Waiting.Reason
		case state.Terminated != nil:
			status = terminated(state.Terminated)
		case c.Ready && state.Running != nil:
			running = true
		}
	}
	if status == "Completed" && running {
		status = "NotReady"
		if podReady(p) {
			status = "Running"
		}
	}
	if p.DeletionTimestamp == nil {
		return status
	}
	if p.Status.Reason == "NodeLost" {
		return "Unknown"
	}
	return "Terminating"
}

func terminated(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func readinessGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return none
	}
	met := 0
	for _, gate := range p.Spec.ReadinessGates {
		for _, c := range p.Status.Conditions {
			if c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue {
				met++
			}
		}
	}
	return fmt.Sprintf("%d/%d", met, len(p.Spec.ReadinessGates))
}
