package controller

import (
	"context"
	"log/slog"

	"github.com/fairway-net/fairway/controller/accounttoken"
	"github.com/fairway-net/fairway/controller/addresses"
	"github.com/fairway-net/fairway/controller/clusterroles"
	"github.com/fairway-net/fairway/controller/disruption"
	"github.com/fairway-net/fairway/controller/endpoints"
	"github.com/fairway-net/fairway/controller/endpointslice"
	"github.com/fairway-net/fairway/controller/expired"
	"github.com/fairway-net/fairway/controller/garbage"
	"github.com/fairway-net/fairway/controller/gateway"
	"github.com/fairway-net/fairway/controller/health"
	"github.com/fairway-net/fairway/controller/mirroring"
	"github.com/fairway-net/fairway/controller/namespace"
	"github.com/fairway-net/fairway/controller/nodecert"
	"github.com/fairway-net/fairway/controller/nodelife"
	"github.com/fairway-net/fairway/controller/noendpoints"
	"github.com/fairway-net/fairway/controller/podgc"
	"github.com/fairway-net/fairway/controller/quota"
	"github.com/fairway-net/fairway/controller/serviceaccount"
	"github.com/fairway-net/fairway/controller/servicecidr"
)

// loop is a controller at work: it returns when its context is done.
type loop interface{ Run(context.Context) }

// idle is a controller with nothing to do.
type idle struct{}

func (idle) Run(context.Context) {}

// starter is one line of the list of controllers. What it reads and writes are the API's
// names of kinds; the picture in docs/explanation/design.md is drawn from them.
type starter struct {
	name   string
	reads  string
	writes string
	new    func(*environment, *slog.Logger) (loop, error)
}

// controllers is the one list of what Run runs, by the names that
// kube-controller-manager's --controllers knows them under.
func controllers() []starter {
	return []starter{
		{"endpointslice-controller", "services pods nodes", "endpointslices events", func(e *environment, log *slog.Logger) (loop, error) {
			return endpointslice.New(e.cluster, e.events("endpoint-slice-controller"), log)
		}},
		{"endpoints-controller", "services pods", "endpoints", func(e *environment, log *slog.Logger) (loop, error) {
			return endpoints.New(e.cluster, log)
		}},
		{"endpointslice-mirroring-controller", "endpoints services", "endpointslices", func(e *environment, log *slog.Logger) (loop, error) {
			return mirroring.New(e.cluster, log)
		}},
		{"no-endpoints-controller", "services pods", "events", func(e *environment, log *slog.Logger) (loop, error) {
			return noendpoints.New(e.cluster, e.events(noendpoints.Component), log), nil
		}},
		{"endpoint-health-controller", "services endpointslices nodes", "endpointslices events", func(e *environment, log *slog.Logger) (loop, error) {
			return health.New(e.cluster, e.events("endpoint-health-controller"), log)
		}},
		{"namespace-controller", "namespaces", "namespaces everything", func(e *environment, log *slog.Logger) (loop, error) {
			return namespace.New(e.cluster, e.metadata, log)
		}},
		{"garbage-collector-controller", "everything", "everything", func(e *environment, log *slog.Logger) (loop, error) {
			return garbage.New(e.typed.Discovery(), e.metadata, log), nil
		}},
		{"certificatesigningrequest-controller", "certificatesigningrequests nodes", "certificatesigningrequests configmaps", func(e *environment, log *slog.Logger) (loop, error) {
			return nodecert.New(e.cluster, e.options.Signer, e.options.MayServeGateways, log)
		}},
		{"expired-objects-controller", "secrets certificatesigningrequests", "secrets certificatesigningrequests", func(e *environment, log *slog.Logger) (loop, error) {
			return expired.New(e.typed, log), nil
		}},
		{"node-lifecycle-controller", "nodes leases pods", "nodes pods endpointslices leases", func(e *environment, log *slog.Logger) (loop, error) {
			return nodelife.New(e.cluster, e.options.NodeGrace, log)
		}},
		{"pod-garbage-collector-controller", "pods nodes", "pods", func(e *environment, log *slog.Logger) (loop, error) {
			return podgc.New(e.cluster, log)
		}},
		{"disruption-controller", "poddisruptionbudgets pods", "poddisruptionbudgets", func(e *environment, log *slog.Logger) (loop, error) {
			return disruption.New(e.typed, log), nil
		}},
		{quota.Name, "resourcequotas everything", "resourcequotas events", func(e *environment, log *slog.Logger) (loop, error) {
			return quota.New(e.typed, e.options.CountQuota, e.events(quota.Name), log)
		}},
		{"clusterrole-aggregation-controller", "clusterroles", "clusterroles", func(e *environment, log *slog.Logger) (loop, error) {
			return clusterroles.New(e.typed, log), nil
		}},
		{servicecidr.Name, "servicecidrs services", "servicecidrs ipaddresses", func(e *environment, log *slog.Logger) (loop, error) {
			return servicecidr.New(e.cluster, log)
		}},
		{"serviceaccount-controller", "namespaces serviceaccounts configmaps", "serviceaccounts configmaps", func(e *environment, log *slog.Logger) (loop, error) {
			return serviceaccount.New(e.cluster, e.options.RootCA, log)
		}},
		{accounttoken.Name, "secrets serviceaccounts", "secrets serviceaccounts", func(e *environment, log *slog.Logger) (loop, error) {
			if e.options.SecretToken == nil {
				return idle{}, nil
			}
			return accounttoken.New(e.typed, e.options.SecretToken, e.options.RootCA, log)
		}},
		{"load-balancer-addresses-controller", "services nodes namespaces ipaddresspools advertisements announcements", "services ipaddresspools namespaces secrets events", func(e *environment, log *slog.Logger) (loop, error) {
			return addresses.New(e.cluster, e.metallb, e.events(addresses.Name), e.options.Addresses, log)
		}},
		{"gateway-controller", "gatewayclasses gateways routes ingresses services secrets leases nodes", "services endpointslices gatewayclasses ingressclasses gateways routes ingresses events", func(e *environment, log *slog.Logger) (loop, error) {
			if e.config == nil { // the clients are fakes
				return idle{}, nil
			}
			return gateway.New(e.config, e.events(gateway.Name), e.options.Gateway, log)
		}},
	}
}

// Names returns the names of all controllers.
func Names() []string {
	var names []string
	for _, c := range controllers() {
		names = append(names, c.name)
	}
	return names
}
