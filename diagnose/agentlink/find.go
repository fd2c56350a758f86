package agentlink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
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

// IsLocal reports whether the agent is asked by a socket of this machine.
func (f Found) IsLocal() bool { return f.Client != nil && f.Path != "" }

// Name is the node's, as far as it is known.
func (f Found) Name() string { return cmp.Or(f.Status.Node, f.Node) }

const (
	// mostAtOnce is how many agents are asked at the same time.
	mostAtOnce = 16
	// mostTime is how long all of them are asked: whoever had no turn by then isn't.
	mostTime = 20 * time.Second
)

var errNoTurn = errors.New("too many others didn't answer in time, so that it wasn't asked")

// errLate is what is said of agents that others needn't wait for.
var errLate = errors.New("it doesn't answer in time")

// AskAll asks each agent of the list how it is. Once all have been asked and others have
// answered, silent ones are waited for no longer than grace.
func AskAll(ctx context.Context, list []Found) {
	asking, end := context.WithTimeoutCause(ctx, mostTime, errNoTurn)
	defer end()
	asking, late := context.WithCancelCause(asking)
	defer late(nil)
	w := waiting{left: len(list), give: func() { late(errLate) }}
	defer w.stop()
	Each(asking, list, func(i int) {
		switch {
		case list[i].Client == nil || list[i].Err != nil:
			w.passed()
		case asking.Err() != nil:
			list[i].Err = context.Cause(asking)
		default:
			w.passed()
			began := time.Now()
			list[i].Status, list[i].Err = list[i].Client.Status(asking)
			if list[i].Err != nil && errors.Is(context.Cause(asking), errLate) {
				list[i].Err = fmt.Errorf("ask the agent at %s: %w", list[i].At, errLate)
			}
			if list[i].Err == nil {
				w.answered(time.Since(began))
			}
		}
	})
}

// grace is how long silent agents are waited for after the last answer, at least; where answers
// take long, it is some times as long as the slowest took.
const (
	grace      = time.Second
	graceTimes = 4
)

// waiting decides when silent agents are given up.
type waiting struct {
	mu      sync.Mutex
	left    int // that weren't asked yet
	slowest time.Duration
	timer   *time.Timer
	give    func()
}

// passed says that one is asked now, or needn't be.
func (w *waiting) passed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left--
	w.restart()
}

// answered says that one has answered.
func (w *waiting) answered(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slowest = max(w.slowest, took)
	w.restart()
}

// restart begins the last wait anew, once all are asked and one has answered.
func (w *waiting) restart() {
	if w.left > 0 || w.slowest == 0 {
		return
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timer = time.AfterFunc(max(grace, graceTimes*w.slowest), w.give)
}

func (w *waiting) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
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

// Because gives what Missing says as the end of an error.
func Because(missing []string) string {
	if len(missing) == 0 {
		return ""
	}
	return ": " + strings.Join(missing, "; ")
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

// FindNamed is Find for sockets that somebody has named: one that isn't there doesn't answer.
func FindNamed(ctx context.Context, patterns ...string) []Found {
	list := Find(ctx, patterns...)
	for _, p := range patterns {
		if _, err := os.Lstat(p); errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(p, `*?[\`) {
			list = append(list, Found{Client: New(p), Err: fmt.Errorf("--agent-socket: %w", err)})
		}
	}
	return list
}

// Find asks the agents at the sockets that the patterns match, sorted by node.
func Find(ctx context.Context, patterns ...string) []Found {
	paths := Sockets(patterns...)
	list := make([]Found, len(paths))
	for i, path := range paths {
		list[i].Client = New(path)
	}
	AskAll(ctx, list)
	slices.SortStableFunc(list, func(a, b Found) int { return cmp.Compare(a.Status.Node, b.Status.Node) })
	return list
}

// Sockets are the sockets that the patterns match, sorted.
func Sockets(patterns ...string) (paths []string) {
	for _, p := range patterns {
		matches, err := filepath.Glob(p)
		if _, lost := os.Lstat(p); err != nil || len(matches) == 0 && errors.Is(lost, fs.ErrPermission) { // asking it says why it doesn't answer
			matches = []string{p}
		}
		paths = append(paths, matches...)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// Of is the agent of a node that answers; nil if there is none.
func Of(list []Found, node string) *Found {
	i := slices.IndexFunc(list, func(f Found) bool { return f.Err == nil && f.Status.Node == node })
	if i < 0 {
		return nil
	}
	return &list[i]
}
