package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/exec"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Errors of parts of a container's start, by which its status names them.
var (
	errConfig = errors.New("configuration")
	errVolume = errors.New("volume")
)

// startContainers starts the pod's containers. One that can't be started is tried
// again; the others run meanwhile. It returns when all run or the pod shall end.
func (w *worker) startContainers(ctx context.Context) {
	for w.pod.DeletionTimestamp == nil && ctx.Err() == nil {
		for i := range w.pod.Spec.Containers {
			spec := &w.pod.Spec.Containers[i]
			if !slices.ContainsFunc(w.containers, func(c *container) bool { return c.spec.Name == spec.Name }) {
				w.startOne(ctx, spec)
			}
		}
		complete := len(w.containers) == len(w.pod.Spec.Containers)
		w.running.Store(&running{w.sandbox, slices.Concat(w.containers, w.inits), complete})
		if complete {
			w.openAllTargets()
			return
		}
		if w.writeStatus(ctx); !w.pause(ctx) {
			return
		}
	}
}

func (w *worker) startOne(ctx context.Context, spec *corev1.Container) {
	c, err := startContainer(ctx, w, spec, w.pod.Spec.RestartPolicy)
	if err != nil {
		w.refused(spec, err)
		return
	}
	delete(w.waiting, spec.Name)
	w.containers = append(w.containers, c)
	w.kubelet.events.Eventf(w.pod, corev1.EventTypeNormal, "Started", "Started container %s", spec.Name)
}

// refused says, once for each reason, why a container can't be started: in the log,
// as an Event, and in its status.
func (w *worker) refused(spec *corev1.Container, err error) {
	s := corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: err.Error()}
	event := "Failed"
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound):
		s.Message += fmt.Sprintf(". The lab pulls no images: this machine has no such program. `fairway lab up --image %s=COMMAND` maps the image to one that it has", imageName(spec.Image))
	case errors.Is(err, errConfig):
		s.Reason = "CreateContainerConfigError"
	case errors.Is(err, errVolume):
		s.Reason, event = w.beforeStart(), "FailedMount"
	}
	if w.waiting[spec.Name] == s {
		return
	}
	if w.waiting == nil {
		w.waiting = map[string]corev1.ContainerStateWaiting{}
	}
	w.waiting[spec.Name] = s
	slog.Error("a container could not be started; trying again", "pod", w.pod.Namespace+"/"+w.pod.Name, "container", spec.Name, "node", w.node.Name, "error", err)
	w.kubelet.events.Eventf(w.pod, corev1.EventTypeWarning, event, "Error starting container %s: %s", spec.Name, s.Message)
}

// beforeStart is what a container waits for that nobody has tried to start.
func (w *worker) beforeStart() string {
	if len(w.pod.Spec.InitContainers) > 0 {
		return "PodInitializing"
	}
	return "ContainerCreating"
}

// unstarted is the status of a container that hasn't been started.
func (w *worker) unstarted(spec *corev1.Container) corev1.ContainerStatus {
	s, known := w.waiting[spec.Name]
	if !known {
		s.Reason = w.beforeStart()
	}
	return corev1.ContainerStatus{
		Name: spec.Name, Image: spec.Image, Started: new(bool), State: corev1.ContainerState{Waiting: &s},
	}
}
