package examine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/compare"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
)

// Kernels says whether explain compares what kernels hold.
type Kernels int

const (
	// KernelsOfFewServices compares nodes that don't hold very many Services, of which all
	// objects are read.
	KernelsOfFewServices Kernels = iota
	// NoKernels compares none.
	NoKernels
	// EveryKernel compares those of all nodes whose agents answer.
	EveryKernel
)

// Explain says where packets go: what was typed is svc/NAME, an address or a name.
func (x *Examiner) Explain(ctx context.Context, typed string, kernels Kernels) (*explain.Report, error) {
	q, err := explain.ParseQuestion(typed, x.From, x.Source.Namespace)
	if err != nil {
		return nil, err
	}
	objects, err := x.Source.ReadFor(ctx, q)
	if err != nil {
		return nil, err
	}
	q.Node = x.Node
	find := sync.OnceValue(func() []agentlink.Found { return x.Source.Agents(ctx, collect.NodeOf(q, objects)) })
	collect.AddNodes(objects, find)
	report, err := explain.FromObjects(q, objects, x.Compile, x.Source.Asker(ctx, find))
	if err == nil && (len(report.Views) > 0 || report.Outcome == explain.OutcomeUnknown) && len(x.Source.Files) == 0 {
		report.NotChecked = append(report.NotChecked, agentlink.Missing(find())...)
	}
	if err == nil && report.Service != nil && len(x.Source.Files) == 0 {
		x.noteAnnounced(ctx, report, objects, find)
	}
	if err == nil && kernels != NoKernels && report.Service != nil && len(report.Views) > 0 && len(x.Source.Files) == 0 {
		compare.Explained(ctx, report, find(), cmp.Or(q.Node, report.From.Node), kernels == EveryKernel)
	}
	return report, err
}

// noteAnnounced says of a Service whose address no node announces that nobody outside reaches
// it, whatever nodes would do with their packets.
func (x *Examiner) noteAnnounced(ctx context.Context, report *explain.Report, objects *explain.Objects, find func() []agentlink.Found) {
	i := slices.IndexFunc(objects.Services, func(s *corev1.Service) bool {
		return s.Namespace == report.Service.Namespace && s.Name == report.Service.Name
	})
	if i < 0 || !doctor.HasPoolAddress(objects.Services[i]) {
		return
	}
	said, missing := Announced(ctx, find())
	if why := unannounced(ctx, objects.Services[i], said, missing); why != "" {
		report.Notes = slices.Insert(report.Notes, 0, fmt.Sprintf("outside: nobody gets there: %s (%s)", why, doctor.NotAnnounced))
	}
}
