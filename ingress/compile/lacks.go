package compile

import (
	"slices"

	"sigs.k8s.io/gateway-api/pkg/features"

	"github.com/fairway-net/fairway/ingress/model"
)

// Lacks is what an engine can't do. Rules that need it answer 500, and pools 502:
// nobody gets something else than was asked for.
type Lacks struct {
	Engine   string                   // its name, for people
	Rule     func(*model.Rule) string // what is lacking for a rule; "" if nothing is
	Pool     func(*model.Pool) string // for a pool
	Ejection string                   // why endpoints that fail get requests nonetheless; "" if they needn't
	Features []features.FeatureName   // of Gateway API
}

// lacking has a rule answer 500 if the engine can't do what it says, and returns
// the reason.
func (c *compiler) lacking(rule *model.Rule) string {
	if c.options.Lacks == nil || rule.Action.Invalid != "" {
		return ""
	}
	why := c.options.Lacks.Rule(rule)
	if why == "" {
		return ""
	}
	why += " (engine " + c.options.Lacks.Engine + ")"
	a := *rule.Action
	a.Invalid, rule.Action = why, &a
	return why
}

// lack notes what of a route can't be done.
func (r *route) lack(at, why string) {
	if why != "" && r.partial == "" {
		r.partial = at + ": " + why
	}
}

// supports reports whether there is a feature with what is lacking.
func (l *Lacks) supports(f features.FeatureName) bool {
	return l == nil || !slices.Contains(l.Features, f)
}
