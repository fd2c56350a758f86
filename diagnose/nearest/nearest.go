// Package nearest finds what somebody probably meant: the labels that a selector
// almost matches, and the name closest to a misspelt one. It is pure.
package nearest

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Suggestion is a change of one requirement of a selector, after which it would
// match.
type Suggestion struct {
	Key     string // the label to change in the selector
	Have    string // what the selector asks for
	Want    string // what the objects have; "" if they lack the label
	Matches int    // how many objects the changed selector would match
}

// Selector suggests how a selector that matches no object would match some: by
// another value of one label, the one most like the present value and, among
// those, the one that most objects have. It returns false if every object
// differs in more than one label, or if the values aren't alike.
func Selector(selector map[string]string, objects []map[string]string) (Suggestion, bool) {
	counts := map[Suggestion]int{}
	for _, labels := range objects {
		if s, one := onlyMismatch(selector, labels); one {
			counts[s]++
		}
	}
	var list []Suggestion
	for s, n := range counts {
		s.Matches = n
		if s.Want != "" && alike(s.Have, s.Want) {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return Suggestion{}, false
	}
	return slices.MinFunc(list, func(a, b Suggestion) int {
		return cmp.Or(cmp.Compare(Distance(a.Have, a.Want), Distance(b.Have, b.Want)), cmp.Compare(b.Matches, a.Matches),
			strings.Compare(a.Key, b.Key), strings.Compare(a.Want, b.Want))
	}), true
}

// onlyMismatch returns the one label in which an object differs from a selector.
func onlyMismatch(selector, labels map[string]string) (Suggestion, bool) {
	var s Suggestion
	mismatches := 0
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if have, ok := labels[key]; !ok || have != selector[key] {
			mismatches++
			s = Suggestion{Key: key, Have: selector[key], Want: have}
		}
	}
	return s, mismatches == 1
}

// Name returns the name most like the given one, or "" if none is like it. Names are in
// small letters, so that others are typed by mistake.
func Name(name string, names []string) string {
	name = strings.ToLower(name)
	best := ""
	for _, n := range slices.Sorted(slices.Values(names)) {
		if alike(name, n) && (best == "" || Distance(name, n) < Distance(name, best)) {
			best = n
		}
	}
	return best
}

// alike reports whether two words are probably meant to be the same: at most a
// third of the longer one differs, or one begins with the other.
func alike(a, b string) bool {
	longer := max(len(a), len(b))
	return Distance(a, b) <= max(1, (longer+1)/3) || len(a) > 2 && strings.HasPrefix(b, a) || len(b) > 2 && strings.HasPrefix(a, b)
}

// Distance is the number of bytes to insert, delete, replace or swap with their
// neighbour that makes b from a (optimal string alignment).
func Distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := 1
			if a[i-1] == b[j-1] {
				replace = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
