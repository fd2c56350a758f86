package doctor

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/explain"
)

// ByAPI examines a Service by what the API says alone: nothing is sent, and no kernel
// is asked. Where the API can't be read, ask asks agents; nil asks nobody.
func ByAPI(ctx context.Context, q explain.Question, s *corev1.Service, objects *explain.Objects, config compile.Config, domain string, ask explain.Asker) (*Report, error) {
	e := &Evidence{Objects: objects, Question: q, Service: s, Domain: domain}
	var err error
	if e.Report, err = explain.FromObjects(q, objects, config, ask); err != nil {
		return nil, err
	}
	return Examine(ctx, e), nil
}
