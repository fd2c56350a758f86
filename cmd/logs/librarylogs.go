// Package logs is where the Kubernetes libraries log.
package logs

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"strconv"

	"k8s.io/klog/v2"

	"github.com/fairway-net/fairway/internal/logdedup"
)

// SetLibraries sets how much the Kubernetes libraries log. Their messages go
// where ours go.
func SetLibraries(verbosity int) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	if err := flags.Set("v", strconv.Itoa(verbosity)); err != nil {
		return fmt.Errorf("set library log level: %w", err)
	}
	level := slog.LevelError
	if verbosity > 0 {
		level = slog.LevelInfo - slog.Level(verbosity)
	}
	handler := slog.Default().Handler()
	if verbosity == 0 { // whoever asks for more wants all
		handler = logdedup.New(handler)
	}
	klog.SetSlogLogger(slog.New(atLeast{handler, level}))
	return nil
}

// SetAgent has the Kubernetes libraries, and whatever else is in the process,
// log where the agent does and in its format.
func SetAgent(log *slog.Logger) {
	slog.SetDefault(log)
	klog.SetSlogLogger(slog.New(logdedup.New(log.Handler())))
}

// atLeast drops messages below a level.
type atLeast struct {
	slog.Handler
	level slog.Level
}

func (h atLeast) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.level}
}

func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.level}
}
