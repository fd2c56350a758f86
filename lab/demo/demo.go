// Package demo shows the main job in a lab: it applies the examples through the
// API, asks the Services from a pod, from a node and from outside, and checks
// every answer.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/examples"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/echo"
)

// applyTimeout is how long what has been applied may take to be in force.
const applyTimeout = time.Minute

// Run makes a lab, shows it, and removes it. It fails if anything answers
// otherwise than it should.
func Run(ctx context.Context, out io.Writer, config lab.Config) (err error) {
	began := time.Now()
	if err := lab.Up(ctx, config); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, lab.Down(config.Name))
		if err == nil {
			fmt.Fprintf(out, "\nEverything is removed. All answers were right.\n")
		}
	}()
	fmt.Fprintf(out, "lab %q: %d nodes, up in %v\n", config.Name, config.Nodes, time.Since(began).Round(10*time.Millisecond))
	d := &demo{out: out, config: config, ask: 20}
	if d.client, err = lab.Client(config.Name); err != nil {
		return err
	}
	if err := d.apply(ctx); err != nil {
		return err
	}
	return d.check(ctx)
}

type demo struct {
	out    io.Writer
	config lab.Config
	client kubernetes.Interface
	ask    int // requests for each pod behind a Service
}

// apply applies the examples and waits for their pods.
func (d *demo) apply(ctx context.Context) error {
	config, err := kube.Config(lab.Kubeconfig(d.config.Name))
	if err != nil {
		return err
	}
	applied, err := apply(ctx, config, examples.Files)
	if err != nil {
		return err
	}
	fmt.Fprintln(d.out, "applied:")
	for _, a := range applied {
		fmt.Fprintf(d.out, "  %s\n", a)
	}
	return d.waitForPods(ctx)
}

func (d *demo) waitForPods(ctx context.Context) error {
	return poll(ctx, func() error { return d.podsAvailable(ctx) })
}

// podsAvailable says which Deployment's pods aren't there yet.
func (d *demo) podsAvailable(ctx context.Context) error {
	list, err := d.client.AppsV1().Deployments("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list deployments: %w", err)
	}
	for _, dep := range list.Items {
		if dep.Status.ObservedGeneration < dep.Generation || dep.Status.AvailableReplicas < *dep.Spec.Replicas {
			return fmt.Errorf("deployment %s: %d of %d pods available", dep.Name, dep.Status.AvailableReplicas, *dep.Spec.Replicas)
		}
	}
	return nil
}

// check asks every Service from everywhere.
func (d *demo) check(ctx context.Context) error {
	vantages, err := d.vantages(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = vantages.close() }() // of no consequence for the answers
	if err := d.printMode(ctx, vantages.node); err != nil {
		return err
	}
	outside, err := echo.Start("client", []echo.Port{{Number: 9376}}, vantages.client.ns.Do)
	if err != nil {
		return err
	}
	defer func() { _ = outside.Close() }()
	services, err := d.client.CoreV1().Services("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list services: %w", err)
	}
	for _, s := range services.Items {
		if s.Name == "kubernetes" {
			continue
		}
		if err := d.checkService(ctx, &s, vantages); err != nil {
			return err
		}
		if s.Name == "hello-service2" {
			if err := d.checkRollOut(ctx, targets(&s, vantages.nodes), vantages); err != nil {
				return err
			}
		}
	}
	if d.config.Kubernetes != "" {
		return nil // its agents are node proxies, and nothing more
	}
	return d.checkNames(ctx, services.Items, vantages)
}

// printMode prints which data plane the agents chose, as one of them says.
func (d *demo) printMode(ctx context.Context, node vantage) error {
	if d.config.Mode == lab.NoMode {
		return nil
	}
	mode, err := node.get(ctx, "http://127.0.0.1:10249/proxyMode")
	if err != nil {
		return fmt.Errorf("ask the agent for its mode: %w", err)
	}
	_, err = fmt.Fprintf(d.out, "data plane: %s\n", mode)
	return err
}

func (d *demo) checkService(ctx context.Context, s *corev1.Service, from *vantages) error {
	backends, err := d.backends(ctx, s)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "\nservice/%s: %s %v, %d backends\n", s.Name, s.Spec.Type, s.Spec.ClusterIPs, len(backends))
	for _, t := range targets(s, from.nodes) {
		for _, v := range from.all() {
			if err := d.checkTarget(ctx, v, t, backends); err != nil {
				return fmt.Errorf("%s from %s: %w", t, v.name, err)
			}
		}
	}
	return d.checkRefusal(ctx, s, from)
}

// poll tries until it succeeds or applyTimeout ends, and returns the last error.
func poll(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", applyTimeout, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
