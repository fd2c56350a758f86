package doctor

import (
	"context"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/explain"
)

// ByAPI examines a Service by what the API says alone: nothing is sent, and no kernel
// is asked. The evidence holds the question, its Service and its objects. Where the API can't
// be read, ask asks agents; nil asks nobody.
func ByAPI(ctx context.Context, e *Evidence, config compile.Config, ask explain.Asker) (*Report, error) {
	var err error
	if e.Report, err = explain.FromObjects(e.Question, e.Objects, config, ask); err != nil {
		return nil, err
	}
	return Examine(ctx, e), nil
}
