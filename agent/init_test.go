package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/kernel"
)

// preparable is a plane that notes that it was prepared.
type preparable struct {
	machinePlane
	prepared *[]string
}

func (p *preparable) Prepare(context.Context, kernel.Preparation) error {
	*p.prepared = append(*p.prepared, p.mode)
	return nil
}

// TestInitPreparesWhatTheAgentMayChoose: with all privileges another mode may be
// the best than with those of the agent.
func TestInitPreparesWhatTheAgentMayChoose(t *testing.T) {
	for _, test := range []struct {
		mode   string
		unable []string
		want   []string
	}{
		{AutoMode, nil, []string{"best"}},
		{AutoMode, []string{"best"}, []string{"privileged", "humble"}},
		{AutoMode, []string{"best", "privileged"}, []string{"humble"}},
		{"privileged", nil, []string{"privileged"}},
		{"last", []string{"best"}, []string{"last"}},
	} {
		var prepared []string
		var kinds []dataplane.Kind
		for _, name := range []string{"best", "privileged", "humble", "last"} {
			kinds = append(kinds, dataplane.Kind{Name: name, Privileged: name == "privileged", New: func(kernel.Options) (dataplane.Plane, error) {
				if slices.Contains(test.unable, name) {
					return nil, &kernel.MissingError{What: name}
				}
				return &preparable{machinePlane{mode: name}, &prepared}, nil
			}})
		}
		err := prepare(t.Context(), kinds, Config{Mode: test.mode, Log: slog.New(slog.DiscardHandler)})
		if err != nil || !slices.Equal(prepared, test.want) {
			t.Errorf("mode %s without %v: prepared %v, want %v: %v", test.mode, test.unable, prepared, test.want, err)
		}
	}
	if err := prepare(t.Context(), nil, Config{Mode: AutoMode, Log: slog.New(slog.DiscardHandler)}); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("without any mode: %v", err)
	}
}
