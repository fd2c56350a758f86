package explain

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// merge makes one of views that say the same; its node names are joined.
func merge(views []View) []View {
	var merged []View
	var names [][]string
	for _, v := range views {
		i := slices.IndexFunc(merged, func(m View) bool {
			return m.Mode == v.Mode && slices.Equal(m.Served, v.Served) && reflect.DeepEqual(m.Decisions, v.Decisions)
		})
		if i < 0 {
			merged, names = append(merged, v), append(names, []string{v.Node})
			continue
		}
		names[i] = append(names[i], v.Node)
	}
	for i := range merged {
		if n := len(names[i]); n > 3 {
			names[i] = append(names[i][:3], fmt.Sprintf("and %d more", n-3))
		}
		merged[i].Node = strings.Join(names[i], ", ")
	}
	return merged
}

// mergeForText is the same for people, to whom it isn't told for each endpoint what it sees of
// the client: that differs from node to node where a plane shows the client to its own endpoints.
func mergeForText(views []View) []View {
	alike := slices.Clone(views)
	for i := range alike {
		alike[i].Decisions = slices.Clone(alike[i].Decisions)
		for j := range alike[i].Decisions {
			d := &alike[i].Decisions[j]
			d.Candidates, d.ClientAddress = slices.Clone(d.Candidates), ""
			for k := range d.Candidates {
				d.Candidates[k].Sees = ""
			}
		}
	}
	return merge(alike)
}
