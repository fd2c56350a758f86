package kubelet

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// initialize runs the init containers one after the other, each to its end; one
// with restartPolicy Always is a sidecar (KEP-753), which only has to start. The
// pod is not prepared if it shall end meanwhile, or if one of them has failed for
// good.
func (w *worker) initialize(ctx context.Context) {
	for i := range w.pod.Spec.InitContainers {
		spec := &w.pod.Spec.InitContainers[i]
		policy := corev1.RestartPolicyOnFailure
		if w.pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
			policy = corev1.RestartPolicyNever
		}
		sidecar := isSidecar(spec)
		if sidecar {
			policy = corev1.RestartPolicyAlways
		} else if w.kubelet.argv(spec) == nil {
			w.kubelet.events.Eventf(w.pod, corev1.EventTypeNormal, "NoProgram", "Init container %s has no command and its image %q no program in this lab: it counts as done", spec.Name, spec.Image)
			continue
		}
		c := w.startInit(ctx, spec, policy)
		if c == nil {
			return
		}
		w.inits = append(w.inits, c)
		w.running.Store(&running{sandbox: w.sandbox, containers: w.inits}) // for their logs
		w.kubelet.events.Eventf(w.pod, corev1.EventTypeNormal, "Started", "Started container %s", spec.Name)
		if !w.await(ctx, c, sidecar) {
			return
		}
	}
	w.prepared = true
}

// startInit starts an init container, again and again if it can't be started; nil if
// the pod shall end meanwhile.
func (w *worker) startInit(ctx context.Context, spec *corev1.Container, policy corev1.RestartPolicy) *container {
	for w.pod.DeletionTimestamp == nil && ctx.Err() == nil {
		c, err := startContainer(ctx, w, spec, policy)
		if err == nil {
			delete(w.waiting, spec.Name)
			return c
		}
		w.refused(spec, err)
		if w.writeStatus(ctx); !w.pause(ctx) {
			return nil
		}
	}
	return nil
}

func isSidecar(spec *corev1.Container) bool {
	return spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// await waits until an init container has ended well or a sidecar has started;
// false if that doesn't happen. It keeps the pod's status up to date.
func (w *worker) await(ctx context.Context, c *container, sidecar bool) bool {
	for w.pod.DeletionTimestamp == nil && ctx.Err() == nil {
		if s := c.status(); sidecar && *s.Started {
			return true
		}
		if ended, well := c.over(); ended {
			return well
		}
		if !w.writeStatus(ctx) {
			if !w.pause(ctx) {
				return false
			}
			continue
		}
		select {
		case w.pod = <-w.updates:
		case <-w.changed:
		case <-ctx.Done():
		}
	}
	return false
}

// initStatuses are the init containers' part of the pod's status; those that
// haven't been started wait.
func (w *worker) initStatuses() []corev1.ContainerStatus {
	return w.statuses(w.pod.Spec.InitContainers, w.inits, func(spec *corev1.Container) corev1.ContainerStatus {
		s := w.unstarted(spec)
		if w.prepared { // it had nothing to do
			s.Ready, s.State = true, terminated(0, w.started, w.started)
		}
		return s
	})
}

func (w *worker) statuses(specs []corev1.Container, started []*container, other func(*corev1.Container) corev1.ContainerStatus) []corev1.ContainerStatus {
	var all []corev1.ContainerStatus
	for i := range specs {
		status := other(&specs[i])
		for _, c := range started {
			if c.spec.Name == specs[i].Name {
				status = c.status()
				if ended, well := c.over(); ended && well {
					status.Ready = true
				}
			}
		}
		all = append(all, status)
	}
	return all
}

// initPhase is the phase of a pod that isn't prepared.
func (w *worker) initPhase() corev1.PodPhase {
	for _, c := range w.inits {
		if ended, well := c.over(); ended && !well {
			return corev1.PodFailed
		}
	}
	return corev1.PodPending
}
