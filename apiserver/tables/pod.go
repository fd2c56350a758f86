package tables

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Pods prints Pods.
func Pods() rest.TableConvertor {
	return of(func(p *corev1.Pod) []any {
		ready, all := containersReady(p)
		ip := p.Status.PodIP
		if len(p.Status.PodIPs) > 0 {
			ip = p.Status.PodIPs[0].IP
		}
		return []any{
			p.Name, fmt.Sprintf("%d/%d", ready, all), podStatus(p), restarts(p), age(p.CreationTimestamp),
			or(ip, none), or(p.Spec.NodeName, none), or(p.Status.NominatedNodeName, none), readinessGates(p),
		}
	}, column("Name", "string"), column("Ready", "string"), column("Status", "string"), column("Restarts", "string"), column("Age", "string"),
		wide("IP", "string"), wide("Node", "string"), wide("Nominated Node", "string"), wide("Readiness Gates", "string"))
}

// containersReady counts a Pod's containers and sidecars, and which of them are ready.
func containersReady(p *corev1.Pod) (ready, all int) {
	all = len(p.Spec.Containers)
	for _, c := range p.Status.ContainerStatuses {
		if c.Ready && c.State.Running != nil {
			ready++
		}
	}
	for i := range p.Spec.InitContainers {
		if isSidecar(&p.Spec.InitContainers[i]) {
			all++
		}
	}
	for _, c := range sidecars(p) {
		if c.Ready && c.Started != nil && *c.Started {
			ready++
		}
	}
	return ready, all
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// sidecars are the statuses of the Pod's init containers that run as long as it does
// (KEP-753).
func sidecars(p *corev1.Pod) []corev1.ContainerStatus {
	var found []corev1.ContainerStatus
	for i, c := range p.Status.InitContainerStatuses {
		if i < len(p.Spec.InitContainers) && isSidecar(&p.Spec.InitContainers[i]) {
			found = append(found, c)
		}
	}
	return found
}

// restarts are those of the containers that run at present, and when the last was.
func restarts(p *corev1.Pod) string {
	counted := slices.Concat(p.Status.ContainerStatuses, sidecars(p))
	if initStatus(p) != "" {
		counted = p.Status.InitContainerStatuses
	}
	n, last := int32(0), metav1.Time{}
	for _, c := range counted {
		n += c.RestartCount
		if ended := c.LastTerminationState.Terminated; ended != nil && last.Before(&ended.FinishedAt) {
			last = ended.FinishedAt
		}
	}
	if n == 0 || last.IsZero() {
		return strconv.Itoa(int(n))
	}
	return fmt.Sprintf("%d (%s ago)", n, age(last))
}

// initStatus says how far a Pod's init containers are; "" if they are through.
func initStatus(p *corev1.Pod) string {
	for i, c := range p.Status.InitContainerStatuses {
		sidecar := i < len(p.Spec.InitContainers) && isSidecar(&p.Spec.InitContainers[i])
		switch state := c.State; {
		case state.Terminated != nil && state.Terminated.ExitCode == 0, sidecar && c.Started != nil && *c.Started:
		case state.Terminated != nil:
			return "Init:" + terminated(state.Terminated)
		case state.Waiting != nil && state.Waiting.Reason != "" && state.Waiting.Reason != "PodInitializing":
			return "Init:" + state.Waiting.Reason
		default:
			return fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
	}
	return ""
}

// podStatus sums a Pod up in a word: what is wrong with a container before
// the phase, and that it is going before everything.
func podStatus(p *corev1.Pod) string {
	status := initStatus(p)
	if status == "" {
		status = containersStatus(p)
	}
	if p.DeletionTimestamp == nil {
		return status
	}
	if p.Status.Reason == "NodeLost" {
		return "Unknown"
	}
	return "Terminating"
}

func containersStatus(p *corev1.Pod) string {
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
	if status != "Completed" || !running {
		return status
	}
	if podReady(p) {
		return "Running"
	}
	return "NotReady"
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
