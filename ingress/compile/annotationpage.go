package compile

import (
	"fmt"
	"slices"
	"strings"
)

//go:generate go test -run ^TestAllAnnotations$ -docs .

// AnnotationsPage is docs/reference/ingress-annotations.md: the table, as people read it. It
// counts those that are named.
func AnnotationsPage(counted []string) string {
	var b strings.Builder
	counts := map[Support]int{}
	for _, a := range table {
		if slices.Contains(counted, a.Name) {
			counts[a.Support]++
		}
	}
	fmt.Fprintf(&b, `# Annotations of ingress-nginx

Made of the table in ingress/compile/annotationtable.go by `+"`make generate`"+`. Names are without their prefix, %s.

| what becomes of it | of the %d that ingress-nginx documents |
|---|---|
| works: it does what it did | %d |
| nothing to set: answers are the same with and without it | %d |
| otherwise: an Event of the Ingress (%s) says how it is | %d |
| refused: left out, and an Event (%s) names another way | %d |
| closes: it protects and can't be done; requests get 500, and an Event says why | %d |

A value that can't be read is an Event (%s), and the annotation is left out. Those marked with * protect: requests get 500 then. So they do with an annotation that isn't in the table
and whose name speaks of auth, limits or lists. An annotation that is read with another one says nothing without it, and an Event says so. A ConfigMap or Secret of another namespace is never read.
The most used ones are held against a real nginx with the directives that ingress-nginx's documentation names, by both engines (`+"`test/nginx`"+`).

| annotation | value | | what it does | in the haproxy engine |
|---|---|---|---|---|
`, "`"+nginx+"`", len(counted), counts[Works], counts[NoNeed], ReasonOtherwise, counts[Otherwise], ReasonRefused, counts[Refused], counts[Closes], ReasonInvalid)
	sorted := slices.Clone(table)
	slices.SortFunc(sorted, func(a, b Annotation) int { return strings.Compare(a.Name, b.Name) })
	for _, a := range sorted {
		mark := ""
		if a.Protects {
			mark = " *"
		}
		value := a.Value
		if a.alone != "" {
			value += "; with " + a.alone
		}
		fmt.Fprintf(&b, "| `%s`%s | %s | %s | %s | %s |\n", a.Name, mark, value, a.Support, a.Effect, a.HAProxy)
	}
	return b.String()
}
