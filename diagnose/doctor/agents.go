package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Agent is what is known of the agent of a node.
type Agent struct {
	Node string
	// KubeProxyNames says that its mode has chains of the names that kube-proxy's have.
	KubeProxyNames bool
	Err            string        // why it doesn't answer; "" if it does
	Waiting        time.Duration // for how long a change isn't in force
	Away           time.Duration // for how long the API doesn't answer it
	NoXDP          []string      // interfaces where it was asked for and can't be had, and why
	LeftOut        []string      // of the Service asked about, or of all
	Ahead          []string      // rules of others that take packets of these first
}

// Kernel is how the kernel of a node compares with what its agent has in force.
type Kernel struct {
	Node, Mode  string
	Objects     int      // that were compared
	Differences []string // "missing element ...", "unexpected ..."
	Err         string   // why it couldn't be compared
}

// changeTimeout is how long a change may wait before the agent is behind.
const changeTimeout = 30 * time.Second

// mostNamed is how many objects a finding names.
const mostNamed = 3

func hasAgents(e *Evidence) (bool, string) { return len(e.Agents) > 0, e.NoAgents }

// checkAgents finds FW121 and FW137.
func checkAgents(_ context.Context, e *Evidence) []Finding {
	var list []Finding
	find := func(grade Grade, format string, args ...any) {
		list = append(list, Finding{Code: AgentBehind, Grade: grade, What: fmt.Sprintf(format, args...)})
	}
	for _, a := range e.Agents {
		switch {
		case a.Err != "":
			find(Proved, "%s", a.Err)
		case a.Waiting > changeTimeout:
			find(Proved, "a change waits for %s on %s", a.Waiting.Round(time.Second), a.Node)
		case a.Waiting > 0:
			find(Note, "a change waits for %s on %s", a.Waiting.Round(time.Millisecond), a.Node)
		}
		if a.Err == "" && a.Away > 0 {
			find(Likely, "the API has not answered the agent of %s for %s; it forwards by what it knows", a.Node, a.Away.Round(time.Second))
		}
	}
	for _, a := range e.Agents {
		for _, why := range a.NoXDP {
			list = append(list, Finding{Code: NoXDP, Grade: Note, What: fmt.Sprintf("no XDP on %s at %s", a.Node, why)})
		}
	}
	if e.Report == nil {
		return list
	}
	for _, v := range e.Report.Views {
		for _, d := range v.Differs {
			find(Likely, "the agent of %s has something else in force than the API says: %s", v.Node, d)
		}
	}
	return list
}

func hasAnswers(e *Evidence) (bool, string) {
	return slices.ContainsFunc(e.Agents, func(a Agent) bool { return a.Err == "" }), strings.Join(silent(e), "; ")
}

// silent names the nodes whose agents don't answer, and why.
func silent(e *Evidence) []string {
	var list []string
	for _, a := range e.Agents {
		if a.Err != "" {
			list = append(list, a.Node+": "+a.Err)
		}
	}
	return list
}

// checkAhead finds FW136.
func checkAhead(_ context.Context, e *Evidence) []Finding {
	var list []Finding
	for _, a := range e.Agents {
		for _, what := range a.Ahead {
			list = append(list, Finding{Code: RulesAhead, Grade: Likely, What: a.Node + ": " + what})
		}
	}
	return list
}

func hasKernel(e *Evidence) (bool, string) {
	return slices.ContainsFunc(e.Kernel, func(k Kernel) bool { return k.Err == "" }) ||
		slices.ContainsFunc(e.Agents, func(a Agent) bool { return len(a.LeftOut) > 0 }), strings.Join(noKernel(e), "; ")
}

// noKernel names the nodes whose kernel couldn't be compared, and why.
func noKernel(e *Evidence) []string {
	var list []string
	for _, k := range e.Kernel {
		if k.Err != "" {
			list = append(list, k.Node+": "+k.Err)
		}
	}
	if e.Service != nil {
		list = append(list, silent(e)...)
	}
	return list
}

// checkKernel finds FW122.
func checkKernel(_ context.Context, e *Evidence) []Finding {
	var list []Finding
	for _, a := range e.Agents {
		for _, what := range a.LeftOut {
			list = append(list, Finding{Code: KernelDiffers, Grade: Proved, What: a.Node + ": " + what})
		}
	}
	for _, k := range e.Kernel {
		for i, d := range k.Differences {
			if i == mostNamed {
				list = append(list, Finding{Code: KernelDiffers, Grade: Proved, What: fmt.Sprintf("%s (%s): and %d more; fairway dump lists them", k.Node, k.Mode, len(k.Differences)-i)})
				break
			}
			list = append(list, Finding{Code: KernelDiffers, Grade: Proved, What: fmt.Sprintf("%s (%s): %s", k.Node, k.Mode, d)})
		}
	}
	return list
}
