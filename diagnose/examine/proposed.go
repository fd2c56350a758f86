package examine

import (
	"context"

	"github.com/fairway-net/fairway/diagnose/change"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/proposal"
)

// Proposed examines the Services of a cluster, or of a namespace of it, as they would be with
// manifests applied. What is found without the manifests, too, is left out, so that only what they
// would bring about counts.
func (x *Examiner) Proposed(ctx context.Context, p *proposal.Proposal, namespace string) (*doctor.Survey, error) {
	before, err := x.world(ctx, p.Before, namespace)
	if err != nil {
		return nil, err
	}
	after, err := x.world(ctx, p.After, namespace)
	if err != nil {
		return nil, err
	}
	after.Proposed = true
	after.LeaveOut(before)
	for _, r := range p.Refused {
		after.AddRefused(r.Object, r.Reason)
	}
	after.NotChecked = append(after.NotChecked, p.NotChecked...)
	return after, nil
}

// world examines the Services of one world, and what it has beside them.
func (x *Examiner) world(ctx context.Context, w change.World, namespace string) (*doctor.Survey, error) {
	source := *x.Source
	source.Joined = w.Objects
	of := *x
	of.Source = &source
	survey, err := of.All(ctx, namespace)
	if err != nil {
		return nil, err
	}
	around := collect.AroundOf(w.Requests)
	around.Pools, around.PoolNamespaces = w.Pools, w.PoolNamespaces
	survey.AddAround(around)
	return survey, nil
}
