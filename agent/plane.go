package agent

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/kernel"
)

// AutoMode asks for the best plane that this machine can run.
const AutoMode = "auto"

// chosen is a mode, and why it is that one.
type chosen struct{ mode, why string }

// because says why the first plane that works is the one, given what others lack.
func because(missing []string) string {
	if len(missing) == 0 {
		return "the best of all"
	}
	return "the best that works here; not " + strings.Join(missing, "; not ")
}

// choose makes the plane that mode names, and says which it is. AutoMode takes
// the first of the list that this machine can run; what the others lack is
// logged, since that is what an operator wants to know next.
func choose(kinds []dataplane.Kind, mode string, options kernel.Options, log *slog.Logger) (chosen, dataplane.Plane, error) {
	if mode != AutoMode {
		i := slices.IndexFunc(kinds, func(k dataplane.Kind) bool { return k.Name == mode })
		if i < 0 {
			_, err := dataplane.Find(mode)
			return chosen{}, nil, fmt.Errorf("mode: %w", err)
		}
		plane, err := kinds[i].New(options)
		if err != nil {
			return chosen{}, nil, fmt.Errorf("start %s mode: %w", mode, err)
		}
		return chosen{mode: mode, why: "as asked"}, plane, nil
	}
	var missing []string
	for _, kind := range kinds {
		plane, err := kind.New(options)
		if err == nil {
			log.Info("mode chosen", "mode", kind.Name, "reason", "it is the best that this machine supports", "unsupported", strings.Join(missing, "; "))
			return chosen{mode: kind.Name, why: because(missing)}, plane, nil
		}
		missing = append(missing, fmt.Sprintf("%s: %v", kind.Name, err))
	}
	return chosen{}, nil, fmt.Errorf("no mode works on this machine: %s", strings.Join(missing, "; "))
}
