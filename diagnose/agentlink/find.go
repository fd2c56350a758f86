package agentlink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Found is an agent, or a place where none answers.
type Found struct {
	*Client        // nil if there is no way to it
	Node    string // whose agent it should be; "" if only the agent knows
	Status  Status
	Err     error // why it doesn't answer
}

// Name is the node's, as far as it is known.
func (f Found) Name() string { return cmp.Or(f.Status.Node, f.Node) }

const (
	// mostAtOnce is how many agents are asked at the same time.
	mostAtOnce = 16
	// mostTime is how long all of them are asked: whoever had no turn by then isn't.
	mostTime = 20 * time.Second
)

var errNoTurn = errors.New("too many others didn't answer in time, so that it wasn't asked")

// AskAll asks each agent of the list how it is.
func AskAll(ctx context.Context, list []Found) {
	asking, cancel := context.WithTimeoutCause(ctx, mostTime, errNoTurn)
	defer cancel()
	Each(asking, list, func(i int) {
		switch {
		case list[i].Client == nil || list[i].Err != nil:
		case asking.Err() != nil:
			list[i].Err = context.Cause(asking)
		default:
			list[i].Status, list[i].Err = list[i].Client.Status(asking)
		}
	})
}

// Each does something for each agent of the list, for some at the same time.
func Each(ctx context.Context, list []Found, do func(i int)) {
	turns := make(chan struct{}, mostAtOnce)
	var group sync.WaitGroup
	for i := range list {
		group.Go(func() {
			select {
			case turns <- struct{}{}:
				defer func() { <-turns }()
			case <-ctx.Done(): // do sees it, and is done at once
			}
			do(i)
		})
	}
	group.Wait()
}

// Missing says which of the agents didn't answer, and why, as lines for people: a
// first one with their number if there are several. It is nil if all did.
func Missing(list []Found) []string {
	reasons := map[string][]string{}
	missing := 0
	for _, f := range list {
		if f.Err != nil {
			missing++
			why := f.Err.Error()
			if f.Client != nil && f.Node != "" { // the node's name comes first
				why = strings.TrimPrefix(why, "ask the agent at "+f.At+": ")
			}
			reasons[why] = append(reasons[why], f.Name())
		}
	}
	if missing == 0 {
		return nil
	}
	var lines []string
	if len(list) > 1 {
		lines = append(lines, fmt.Sprintf("%d of %d nodes answered", len(list)-missing, len(list)))
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		lines = append(lines, namesOf(reasons[why])+why)
	}
	if len(lines) > mostLines {
		lines = append(lines[:mostLines], fmt.Sprintf("and %d more reasons", len(lines)-mostLines))
	}
	return lines
}

const (
	mostLines = 20 // of reasons
	mostNames = 50 // in a line
)

// namesOf lists nodes, as the beginning of a line.
func namesOf(nodes []string) string {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == "" })
	slices.Sort(nodes)
	more := ""
	if n := len(nodes) - mostNames; n > 0 {
		nodes, more = nodes[:mostNames], fmt.Sprintf(" and %d more", n)
	}
	if len(nodes) == 0 {
		return ""
	}
	return strings.Join(nodes, ", ") + more + ": "
}

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
	for i, path := range paths {
		list[i].Client = New(path)
	}
	AskAll(ctx, list)
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
