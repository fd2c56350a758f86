package change

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ingress "github.com/fairway-net/fairway/ingress/compile"
)

// requests compares what Gateways and Ingresses do with requests. Which endpoints answer is said
// of their Services.
func (in *Input) requests() []Change {
	wasRules, wasWrong := meaningOf(in.Before.Requests)
	isRules, isWrong := meaningOf(in.After.Requests)
	lines := map[string][]Line{}
	for key, is := range isRules {
		switch was, had := wasRules[key]; {
		case !had:
			lines[key.gateway] = append(lines[key.gateway], Line{Appears, key.request + ": " + is})
		case was != is:
			lines[key.gateway] = append(lines[key.gateway], Line{Changes, fmt.Sprintf("%s: %s; it was %s", key.request, is, was)})
		}
	}
	for key, was := range wasRules {
		if _, has := isRules[key]; !has {
			lines[key.gateway] = append(lines[key.gateway], Line{Goes, key.request + ": no rule of its own; it was " + was})
		}
	}
	for key := range isWrong {
		if !wasWrong[key] {
			lines[key.gateway] = append(lines[key.gateway], Line{Wrong, key.request})
		}
	}
	var list []Change
	for object, l := range lines {
		slices.SortFunc(l, func(a, b Line) int { return strings.Compare(a.What, b.What) })
		list = append(list, Change{object, l})
	}
	slices.SortFunc(list, func(a, b Change) int { return strings.Compare(a.Object, b.Object) })
	return list
}

// place is a Gateway, or what has a problem, and what is asked of it, or said.
type place struct{ gateway, request string }

// meaningOf says of each rule what it does, and what can't be done.
func meaningOf(o *ingress.Objects) (rules map[place]string, wrong map[place]bool) {
	rules, wrong = map[place]string{}, map[place]bool{}
	if o == nil {
		return rules, wrong
	}
	out := ingress.Compile(o, ingress.Options{})
	for _, s := range out.Table.Sockets {
		scheme := map[bool]string{false: "http", true: "https"}[s.TLS]
		for _, l := range s.Listeners {
			for _, h := range l.Hosts() {
				host := h.Hostname
				if host == "" {
					host = "any host"
				}
				for _, r := range h.Rules {
					key := place{"Gateway " + s.Name, fmt.Sprintf("%s, %s, %s", scheme, host, &r.Match)}
					if _, first := rules[key]; !first { // the first rule takes it
						rules[key] = r.Action.String()
					}
				}
			}
		}
	}
	for _, p := range out.Problems {
		wrong[place{p.Kind + " " + p.Object.String(), p.Message}] = true
	}
	for name, parents := range out.Routes {
		for _, parent := range parents {
			noteFalse(wrong, name.Kind+" "+name.NamespacedName.String(), parent.Conditions)
		}
	}
	for name, g := range out.Gateways {
		for _, l := range g.Status.Listeners {
			noteFalse(wrong, "Gateway "+name.String(), l.Conditions)
		}
	}
	return rules, wrong
}

// noteFalse notes what a condition denies.
func noteFalse(wrong map[place]bool, object string, conditions []metav1.Condition) {
	for _, c := range conditions {
		if c.Status == metav1.ConditionFalse && (c.Type == "Accepted" || c.Type == "ResolvedRefs" || c.Type == "Programmed") {
			wrong[place{object, fmt.Sprintf("not %s: %s", c.Type, c.Message)}] = true
		}
	}
}
