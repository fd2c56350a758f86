package agentlink

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"sync"
)

// Found is an agent of this machine, or a socket that none answers at.
type Found struct {
	*Client
	Status Status
	Err    error // why it doesn't answer
}

// mostAtOnce is how many agents are asked at the same time.
const mostAtOnce = 8

// Find asks the agents at the sockets that the patterns match, sorted by node.
func Find(ctx context.Context, patterns ...string) []Found {
	var paths []string
	for _, p := range patterns {
		matches, err := filepath.Glob(p)
		if err != nil { // a pattern of somebody who means a name
			matches = []string{p}
		}
		paths = append(paths, matches...)
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	list := make([]Found, len(paths))
	turns := make(chan struct{}, mostAtOnce)
	var group sync.WaitGroup
	for i, path := range paths {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			list[i].Client = New(path)
			list[i].Status, list[i].Err = list[i].Client.Status(ctx)
		})
	}
	group.Wait()
	slices.SortStableFunc(list, func(a, b Found) int { return cmp.Compare(a.Status.Node, b.Status.Node) })
	return list
}

// Of is the agent of a node that answers; nil if there is none.
func Of(list []Found, node string) *Found {
	i := slices.IndexFunc(list, func(f Found) bool { return f.Err == nil && f.Status.Node == node })
	if i < 0 {
		return nil
	}
	return &list[i]
}
