package kubelet

import (
	"cmp"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"

	"github.com/fairway-net/fairway/lab/echo"
)

// watchServices has pods without a program answer on the ports that Services
// target.
func (k *Kubelet) watchServices(informer cache.SharedIndexInformer) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { k.openTargets(o) },
		UpdateFunc: func(_, o any) { k.openTargets(o) },
	})
	return err
}

// openTargets opens a Service's target ports in the pods that it selects.
func (k *Kubelet) openTargets(o any) {
	s, ok := o.(*corev1.Service)
	if !ok || len(s.Spec.Selector) == 0 {
		return
	}
	var selected []*worker
	k.mu.Lock()
	for _, w := range k.workers {
		if w.first.Namespace == s.Namespace {
			selected = append(selected, w)
		}
	}
	k.mu.Unlock()
	for _, w := range selected {
		w.openTargets(s)
	}
}

// openAllTargets opens the target ports of all Services that select the pod.
func (w *worker) openAllTargets() {
	all, err := w.kubelet.services.Services(w.first.Namespace).List(labels.Everything())
	if err != nil {
		slog.Error("Services could not be listed", "error", err)
		return
	}
	for _, s := range all {
		w.openTargets(s)
	}
}

// openTargets opens a Service's target ports, if the Service selects the pod and
// none of its containers has a program, which would open its ports itself. Names of
// ports are those of declared ones, which are open.
func (w *worker) openTargets(s *corev1.Service) {
	r := w.running.Load()
	if r == nil || !r.complete || r.sandbox.pod == nil || len(s.Spec.Selector) == 0 {
		return
	}
	if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(w.latest.Load().Labels)) {
		return
	}
	var server *echoProcess
	open := map[echo.Port]bool{}
	for _, c := range r.containers {
		e, ok := c.process.(*echoProcess)
		if !ok {
			return
		}
		if server == nil {
			server = e
		}
		for _, p := range echoPorts(c.spec) {
			open[p] = true
		}
	}
	for _, port := range s.Spec.Ports {
		number := port.TargetPort.IntVal
		if port.TargetPort.Type == intstr.Int && number == 0 {
			number = port.Port
		}
		p := echo.Port{Number: uint16(number), Protocol: string(cmp.Or(port.Protocol, corev1.ProtocolTCP))}
		if port.TargetPort.Type != intstr.Int || open[p] || server == nil {
			continue
		}
		if err := server.open(p); err != nil {
			w.kubelet.events.Eventf(w.first, corev1.EventTypeWarning, "NotListening", "Service %s targets port %v: %v", s.Name, p, err)
		}
	}
}
