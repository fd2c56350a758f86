package hook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The reasons of Events.
const (
	reasonFailed  = "HookFailed"
	reasonRefused = "HookRefused"
	reasonAnswer  = "HookAnswerInvalid"
	reasonForce   = "HookInForce"
)

// mostTold is how many Services get an Event about one failure of the target.
const mostTold = 5

// failed tells of a failure, once for each text: in one line, and in Events of Services
// that wait for the target.
func (h *hook) failed(err error) {
	text := h.config.Target.String() + ": " + firstLine(err.Error())
	if errors.Is(err, errPartly) || h.told[""] == text {
		return
	}
	h.told[""] = text
	h.config.Log.Warn("the target did not accept the state; trying again", "target", h.config.Target.String(), "error", err)
	now, _ := h.collector.current()
	waiting := map[string]bool{}
	for _, c := range changes(h.delivered, now) {
		if c.Service != "" && now.services[c.Service] != nil && len(waiting) < mostTold {
			waiting[c.Service] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(waiting)) {
		h.report(now.services[key], corev1.EventTypeWarning, reasonFailed, text)
	}
}

// recovered tells that the target works again.
func (h *hook) recovered() {
	if h.told[""] != "" {
		delete(h.told, "")
		h.config.Log.Info("the target accepted the state", "target", h.config.Target.String())
	}
}

// reportOnce writes an Event and a line unless the last about this Service said the same.
func (h *hook) reportOnce(s *Service, reason, text string) {
	if h.told[s.Key()] == reason+text {
		return
	}
	h.told[s.Key()] = reason + text
	h.config.Log.Warn("a Service could not be configured as requested", "service", s.Key(), "target", h.config.Target.String(), "error", text)
	h.report(s, corev1.EventTypeWarning, reason, text)
}

func (h *hook) report(s *Service, kind, reason, text string) {
	h.collector.mu.Lock()
	var object *corev1.Service
	for key, o := range h.collector.services {
		if key.String() == s.Key() {
			object = o
		}
	}
	h.collector.mu.Unlock()
	if object != nil {
		h.events.Event(withKind(object), kind, reason, text)
	}
}

func withKind(s *corev1.Service) *corev1.Service {
	c := *s
	c.APIVersion, c.Kind = "v1", "Service"
	return &c
}

// take does what an answer says. An error has the state delivered again.
func (h *hook) take(ctx context.Context, now snapshot, a *Answer) error {
	if a.nonsense != "" && h.told["answer"] != a.nonsense {
		h.told["answer"] = a.nonsense
		h.config.Log.Warn("the answer is ignored", "target", h.config.Target.String(), "error", a.nonsense)
		for _, key := range slices.Sorted(maps.Keys(now.services))[:min(1, len(now.services))] {
			h.report(now.services[key], corev1.EventTypeWarning, reasonAnswer, h.config.Target.String()+": "+a.nonsense)
		}
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(a.Services)) {
		service, answer := now.services[key], a.Services[key]
		if service == nil {
			h.config.Log.Warn("the answer names a Service that this hook doesn't manage", "service", firstLine(key))
			continue
		}
		if answer.Error != "" {
			h.reportOnce(service, reasonRefused, firstLine(answer.Error))
			errs = append(errs, errPartly)
		}
		if answer.Warning != "" {
			h.reportOnce(service, reasonRefused, firstLine(answer.Warning))
		}
		if answer.Ingress == nil {
			if answer.Error == "" && answer.Warning == "" {
				delete(h.told, key)
			}
			continue
		}
		if err := h.setStatus(ctx, service, &answer); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// setStatus writes the addresses of a Service, if this hook is its balancer.
func (h *hook) setStatus(ctx context.Context, s *Service, answer *ServiceAnswer) error {
	if h.config.Selection.Class == "" || s.Class != h.config.Selection.Class {
		h.reportOnce(s, reasonAnswer, "the hook gives addresses, but is not the balancer of this Service's class: --class says which it is of")
		return nil
	}
	want, err := answer.status()
	if err != nil {
		h.reportOnce(s, reasonAnswer, err.Error())
		return nil
	}
	client := h.config.Client.CoreV1().Services(s.Namespace)
	have, err := client.Get(ctx, s.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Service %s: %w", s.Key(), err)
	}
	if answer.Error == "" && answer.Warning == "" {
		delete(h.told, s.Key())
	}
	if sameIngress(have.Status.LoadBalancer.Ingress, want) {
		return nil
	}
	have.Status.LoadBalancer.Ingress = want
	if _, err := client.UpdateStatus(ctx, have, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write status of Service %s: %w", s.Key(), err)
	}
	h.report(s, corev1.EventTypeNormal, reasonForce, h.config.Target.String()+" serves it")
	return nil
}

// sameIngress compares addresses; what the server adds to them doesn't count.
func sameIngress(have, want []corev1.LoadBalancerIngress) bool {
	plain := func(list []corev1.LoadBalancerIngress) [][2]string {
		var out [][2]string
		for _, i := range list {
			out = append(out, [2]string{i.IP, i.Hostname})
		}
		return out
	}
	return reflect.DeepEqual(plain(have), plain(want))
}
