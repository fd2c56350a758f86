package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// checkRefusal connects to a port that the Service doesn't have: that must be
// refused at once, not left to time out.
func (d *demo) checkRefusal(ctx context.Context, s *corev1.Service, from *vantages) error {
	const unserved = "9"
	address := net.JoinHostPort(s.Spec.ClusterIP, unserved)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, v := range from.all() {
		c, err := v.dial(ctx, "tcp", address)
		if err == nil {
			return errors.Join(fmt.Errorf("port %s of %s, which it doesn't have, answers to %s", unserved, s.Name, v.name), c.Close())
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("port %s of %s, which it doesn't have, from %s: want it refused: %w", unserved, s.Name, v.name, err)
		}
	}
	_, err := fmt.Fprintf(d.out, "  %-41s refused, as it should be: it has no such port\n", address)
	return err
}

// checkRollOut replaces all pods of the Deployment hello while its Service is
// asked without a pause from everywhere: no request may fail.
func (d *demo) checkRollOut(ctx context.Context, at []target, from *vantages) error {
	old, err := d.podNames(ctx)
	if err != nil {
		return err
	}
	busy, stop := context.WithCancel(ctx)
	defer stop()
	var asking errgroup.Group
	var answers atomic.Int64
	// The pod that was asked from is replaced too, so it doesn't take part.
	for _, v := range []vantage{from.node, from.client} {
		for _, t := range at {
			asking.Go(func() error { return askUntil(busy, v, t, &answers) })
		}
	}
	began := time.Now()
	err = d.replace(ctx, old)
	stop()
	if err := errors.Join(err, asking.Wait()); err != nil {
		return fmt.Errorf("rolling update: %w", err)
	}
	_, err = fmt.Fprintf(d.out, "  rolling update of all %d pods in %v: %d requests meanwhile, none failed\n",
		len(old), time.Since(began).Round(100*time.Millisecond), answers.Load())
	if err != nil {
		return err
	}
	return from.reopenPod(ctx, d)
}

// askUntil asks until the context ends.
func askUntil(ctx context.Context, v vantage, t target, answers *atomic.Int64) error {
	for ctx.Err() == nil {
		// Not with ctx: a request that has begun shall be answered.
		name, err := v.ask(context.WithoutCancel(ctx), t)
		if err != nil {
			return fmt.Errorf("%s from %s: %w", t, v.name, err)
		}
		if !strings.HasPrefix(name, "hello-") {
			return fmt.Errorf("%s from %s: answered by %q", t, v.name, name)
		}
		answers.Add(1)
	}
	return nil
}

// replace changes the Deployment's template and waits until the old pods are
// gone.
func (d *demo) replace(ctx context.Context, old map[string]bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"demo":%q}}}}}`, time.Now())
	_, err := d.client.AppsV1().Deployments("default").Patch(ctx, "hello", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("change deployment hello: %w", err)
	}
	return poll(ctx, func() error {
		now, err := d.podNames(ctx)
		if err != nil {
			return err
		}
		for name := range old {
			if now[name] {
				return fmt.Errorf("pod %s is still there", name)
			}
		}
		return d.podsAvailable(ctx)
	})
}

func (d *demo) podNames(ctx context.Context) (map[string]bool, error) {
	pods, err := d.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=hello"})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	names := map[string]bool{}
	for _, p := range pods.Items {
		names[p.Name] = true
	}
	return names, nil
}
