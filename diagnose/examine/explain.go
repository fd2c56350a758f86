package examine

import (
	"cmp"
	"context"
	"sync"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/compare"
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
	if err == nil && kernels != NoKernels && report.Service != nil && len(report.Views) > 0 && len(x.Source.Files) == 0 {
		compare.Explained(ctx, report, find(), cmp.Or(q.Node, report.From.Node), kernels == EveryKernel)
	}
	return report, err
}
