package agent

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/tuning"
	"github.com/fairway-net/fairway/kube/notices"
)

// Update is a configuration that an agent shall go on with.
type Update struct {
	Config Config
	// Err, if not nil, says why there is none: the agent tells about it and goes
	// on as before.
	Err error
}

// The reasons of Events about this node.
const (
	reasonConfigured    = "ProxyConfigurationChanged"
	reasonNotConfigured = "ProxyConfigurationInvalid"
	reasonModeStays     = "ProxyModeUnchanged"
	reasonRepaired      = "KernelObjectsRepaired"
	reasonAhead         = "RulesOfOthersFirst"
	reasonLeftovers     = "LeftoversOfMode"
	reasonReadOnly      = "ReadOnlySysFS"
	reasonFull          = "KernelObjectFull"
	reasonLeftOut       = "LeftOut" // of Services, too
)

// follow takes in configurations until ctx is done. What it can't change in the
// running agent ends it, with a successor for its place.
func (a *Agent) follow(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case update, open := <-a.config.Updates:
			switch {
			case !open:
				return nil
			case update.Err != nil:
				a.metrics.Reloads.WithLabelValues("invalid").Inc()
				a.config.Log.Error("the new configuration is not used; the old one stays", "error", update.Err)
				a.events.ReportNode(reasonNotConfigured, update.Err.Error())
			default:
				a.metrics.Reloads.WithLabelValues("taken").Inc()
				a.config.Log.Info("the configuration changed")
				a.events.Post(notices.Notice{Reason: reasonConfigured, Message: "the configuration file changed, and is in force", Kind: corev1.EventTypeNormal})
				if a.config.needsRestart(update.Config) {
					return &successorError{update.Config}
				}
				a.adapt(ctx, update.Config)
			}
		}
	}
}

// successorError ends an agent for another one in the same process.
type successorError struct{ config Config }

func (e *successorError) Error() string { return "the configuration changed" }

// needsRestart reports whether two configurations differ in what is fixed when
// the watches begin and the ports open.
func (c *Config) needsRestart(next Config) bool {
	return c.API != next.API || c.NodeName != next.NodeName || c.HealthzAddress != next.HealthzAddress ||
		c.MetricsAddress != next.MetricsAddress || c.RetryBind != next.RetryBind || c.PrimaryAddress != next.PrimaryAddress
}

// adapt changes what can be changed while the agent runs: the meaning of
// Services at once, and the mode as soon as the new plane is complete.
func (a *Agent) adapt(ctx context.Context, next Config) {
	a.configured.Store(&next)
	a.tune(next)
	a.health.setChangeTimeout(2 * next.VerifyPeriod)
	a.state.setConfig(next.Compile)
	a.switchPlane(ctx, next)
}

// switchPlane has another mode, or other options, take over. It goes on while
// others are asked for, which then supersede it.
func (a *Agent) switchPlane(ctx context.Context, next Config) {
	if !a.planes.differs(next.Mode, a.planeOptions(next)) {
		return
	}
	a.group.Go(func() error {
		err := a.Switch(ctx, next.Mode, a.planeOptions(next))
		if err != nil && ctx.Err() == nil && !errors.Is(err, errSuperseded) {
			a.config.Log.Error("the mode was not changed", "wanted", next.Mode, "mode", a.Mode(), "error", err)
			a.events.ReportNode(reasonModeStays, fmt.Sprintf("mode %s stays: %v", a.Mode(), err))
		}
		return nil
	})
}

// planeOptions are the plane's, with what it is to tell this agent.
func (a *Agent) planeOptions(c Config) kernel.Options {
	options := c.Plane
	options.Swept, options.SweepLater = a.metrics.Swept, true
	return options
}

// tune sets what the node's kernel has but one of. What can't be set is told,
// and no reason not to forward.
func (a *Agent) tune(c Config) {
	if c.OOMScoreAdj != nil {
		if err := tuning.SetOOMScore(*c.OOMScoreAdj); err != nil {
			a.config.Log.Warn("the OOM score of the agent could not be set", "error", err)
		}
	}
	if c.Conntrack == (tuning.Conntrack{}) {
		return
	}
	if err := c.Conntrack.Apply(); err != nil {
		a.config.Log.Warn("connection tracking could not be configured", "error", err)
		var readOnly *tuning.ReadOnlyError
		if errors.As(err, &readOnly) {
			a.events.ReportNode(reasonReadOnly, fmt.Sprintf("connection tracking could not be configured: %v", err))
		}
	}
}

// setConfig replaces what the compiler goes by.
func (s *state) setConfig(config compile.Config) {
	s.update(func(c *compile.Compiler) {
		config.Served = s.config.Served
		s.configuredCIDRs = config.ServiceCIDRs
		if len(s.serviceCIDRs) > 0 {
			config.ServiceCIDRs = s.allServiceCIDRs()
		}
		if !reflect.DeepEqual(config, s.config) {
			s.config = config
			c.SetConfig(config)
		}
	})
}

// differs reports whether a mode and options are not what was last asked for.
func (s *switcher) differs(mode string, options kernel.Options) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if mode == s.wantedMode && sameOptions(options, s.wantedOptions) {
		return false
	}
	s.wantedMode, s.wantedOptions = mode, options
	return true
}

// sameOptions compares options but for their functions.
func sameOptions(a, b kernel.Options) bool {
	a.Drift, b.Drift, a.Swept, b.Swept = nil, nil, nil, nil
	return reflect.DeepEqual(a, b)
}
