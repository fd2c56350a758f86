package kubeproxy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fairway-net/fairway/agent"
)

// The feature gates of kube-proxy that have their effect here: both are on by
// default (since 1.36).
const (
	componentFlagz   = "ComponentFlagz"
	componentStatusz = "ComponentStatusz"
)

// gateWarnings names the feature gates that have no effect.
func gateWarnings(gates map[string]bool) []string {
	var without []string
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		if name != componentFlagz && name != componentStatusz {
			without = append(without, name)
		}
	}
	if without == nil {
		return nil
	}
	return []string{fmt.Sprintf("featureGates: has no effect: %s: %s", fields["featureGates"].why, strings.Join(without, ", "))}
}

// pages takes away the pages about the process that gates turn off.
func pages(gates map[string]bool, z *agent.ZPages) {
	off := func(name string) bool { on, given := gates[name]; return given && !on }
	z.NoFlagz, z.NoStatusz = z.NoFlagz || off(componentFlagz), z.NoStatusz || off(componentStatusz)
}

// gates reads --feature-gates: NAME=true or false, with commas between.
func gates(f *Flags, text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, found := strings.Cut(part, "=")
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if !found || err != nil {
			return fmt.Errorf("%q is not of the form NAME=true or NAME=false", part)
		}
		if f.set.FeatureGates == nil {
			f.set.FeatureGates = map[string]bool{}
		}
		f.set.FeatureGates[strings.TrimSpace(name)] = on
	}
	return nil
}
