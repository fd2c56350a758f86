package controller

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/controller/addresses"
	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/controller/gateway"
)

// RunAddresses runs the address controller alone, for clusters whose other
// controllers are Kubernetes' own. Of the options it heeds Lease, Addresses and
// Logger.
func RunAddresses(ctx context.Context, config *rest.Config, options Options) error {
	clients, err := newClients(config)
	if err != nil {
		return err
	}
	log := options.Logger
	if log == nil {
		log = slog.Default()
	}
	work := func(ctx context.Context) error { return giveAddresses(ctx, clients, options.Addresses, log) }
	if options.Lease == nil {
		return work(ctx)
	}
	if err := options.Lease.validate(); err != nil {
		return err
	}
	return options.Lease.Lead(ctx, clients.typed, work)
}

// RunGateways runs the controller of Gateways without the other controllers. It uses the
// options Lease, Gateway and Logger. With a Lease, it works only while it leads.
func RunGateways(ctx context.Context, config *rest.Config, options Options) error {
	clients, err := newClients(config)
	if err != nil {
		return err
	}
	log := options.Logger
	if log == nil {
		log = slog.Default()
	}
	work := func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		broadcaster := record.NewBroadcaster(record.WithContext(ctx))
		defer broadcaster.Shutdown()
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.typed.CoreV1().Events("")})
		recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: gateway.Name})
		c, err := gateway.New(config, recorder, options.Gateway, log)
		if err != nil {
			return fmt.Errorf("start controller of Gateways: %w", err)
		}
		c.Run(ctx)
		return nil
	}
	if options.Lease == nil {
		return work(ctx)
	}
	return options.Lease.Lead(ctx, clients.typed, work)
}

func giveAddresses(ctx context.Context, clients clients, options addresses.Options, log *slog.Logger) error {
	cache := cluster.NewOfServices(clients.typed)
	ctx, cancel := context.WithCancel(ctx)
	defer cache.Stop()
	defer cancel()
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clients.typed.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: addresses.Name})
	c, err := addresses.New(cache, clients.metallb, recorder, options, log)
	if err != nil {
		return fmt.Errorf("start address controller: %w", err)
	}
	if err := cache.Start(ctx); err != nil {
		return nilIfDone(ctx, err)
	}
	c.Run(ctx)
	return nil
}
