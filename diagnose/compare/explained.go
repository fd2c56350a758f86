package compare

import (
	"context"
	"fmt"
	"sync"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/dump"
	"github.com/fairway-net/fairway/diagnose/explain"
)

const (
	// MostServices is with how many Services in force the kernel is read without
	// being asked to: reading takes as long as there are objects.
	MostServices = 2000
	// mostKernels is how many nodes' kernels are compared at the same time, and at all.
	mostKernels = 8
)

// Explained compares what the kernels of nodes hold of the report's Service with
// what their agents have in force. node limits it to one, unless it is "". What
// could not be compared is said.
func Explained(ctx context.Context, r *explain.Report, agents []agentlink.Found, node string, always bool) {
	type result struct {
		agent  agentlink.Found
		report *dump.Report
		err    error
	}
	var results []*result
	left := 0
	for _, a := range agents {
		switch {
		case a.Err != nil: // which is said
		case node != "" && a.Status.Node != node:
		case !always && a.Status.Services > MostServices:
			r.NotChecked = append(r.NotChecked, fmt.Sprintf("kernel of %s: it holds %d Services, and reading takes long: --kernel", a.Status.Node, a.Status.Services))
		case len(results) == mostKernels:
			left++
		default:
			results = append(results, &result{agent: a})
		}
	}
	if left > 0 {
		r.NotChecked = append(r.NotChecked, fmt.Sprintf("kernels of %d more nodes: --node", left))
	}
	var group sync.WaitGroup
	for _, one := range results {
		group.Go(func() { one.report, one.err = Service(ctx, one.agent, r.Service.Namespace, r.Service.Name) })
	}
	group.Wait()
	for _, one := range results {
		if one.err != nil {
			r.NotChecked = append(r.NotChecked, fmt.Sprintf("kernel of %s: %v", one.agent.Status.Node, one.err))
			continue
		}
		r.AddKernel(kernelOf(one.agent, one.report))
	}
}

// kernelOf is a dump in the words of a report.
func kernelOf(agent agentlink.Found, d *dump.Report) explain.Kernel {
	k := explain.Kernel{Node: agent.Status.Node, Mode: agent.Status.Mode}
	for _, l := range d.Lines {
		if l.State != dump.Unexpected {
			k.Objects = append(k.Objects, l.String())
		}
	}
	for _, l := range d.Differences() {
		k.Differences = append(k.Differences, l.State+" "+l.String())
	}
	return k
}
