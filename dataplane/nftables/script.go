package nftables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// scriptFile is the name of the script that Script makes.
const scriptFile = "fairway.nft"

// Script is what Render says as input for `nft -f`, which replaces the table
// by it.
func Script(t *model.Table, options kernel.Options) (map[string]string, error) {
	t = model.Expand(t)
	target := build(t, options, nil, 1)
	var b strings.Builder
	header := "table inet " + tableName
	fmt.Fprintf(&b, "%s\ndelete %s\n%s {\n\tcomment %q\n", header, header, header, tableComment)
	elements := map[*set][]element{}
	for _, e := range target.elementList() {
		elements[e.set] = append(elements[e.set], e)
	}
	for _, s := range sets {
		fmt.Fprintf(&b, "\n\t%s %s {\n", s.kind(), s.name)
		for _, line := range s.body() {
			fmt.Fprintf(&b, "\t\t%s\n", line)
		}
		writeElements(&b, s, elements[s])
		b.WriteString("\t}\n")
	}
	for i := range target.chains {
		c := &target.chains[i]
		fmt.Fprintf(&b, "\n\tchain %s {\n", c.name)
		for _, line := range c.body() {
			fmt.Fprintf(&b, "\t\t%s\n", line)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return map[string]string{scriptFile: b.String()}, nil
}

func writeElements(b *strings.Builder, s *set, list []element) {
	if len(list) == 0 {
		return
	}
	if s.isInterval() {
		list = joinIntervals(list)
	} else {
		slices.SortFunc(list, func(a, b element) int { return strings.Compare(sortKey(&a), sortKey(&b)) })
	}
	b.WriteString("\t\telements = {\n")
	for i := range list {
		fmt.Fprintf(b, "\t\t\t%s,\n", list[i].script())
	}
	b.WriteString("\t\t}\n")
}

// isInterval reports whether elements are a beginning and an end.
func (s *set) isInterval() bool { return len(s.key) == 1 && s.flags != 0 }

// sortKey brings numbers into their order, whatever the machine's.
func sortKey(e *element) string {
	if e.set.key[0].magic != class.magic {
		return e.key + e.keyEnd
	}
	n := fmt.Sprintf("%08x", fromNative(e.key[:4]))
	if len(e.key) == 8 {
		n += fmt.Sprintf("%08x", fromNative(e.key[4:]))
	}
	return n
}

// joinIntervals gives every beginning of an interval its end as keyEnd.
func joinIntervals(list []element) []element {
	var out []element
	for _, e := range list {
		if !e.end {
			out = append(out, e)
		} else if n := len(out); n > 0 {
			out[n-1].keyEnd = e.key
		}
	}
	return out
}

// script is the element in nft's language.
func (e *element) script() string {
	var b strings.Builder
	b.WriteString(e.scriptKey())
	if e.comment != "" {
		fmt.Fprintf(&b, " comment %q", e.comment)
	}
	switch {
	case e.set.isVerdictMap():
		b.WriteString(" : " + e.verdict.String())
	case e.set.value != nil:
		b.WriteString(" : " + format(e.set.value, e.data))
	}
	return b.String()
}

func (e *element) scriptKey() string {
	switch {
	case e.set == podInterfaces:
		return scriptName(e.key, e.keyEnd)
	case e.set.isInterval():
		first := e.set.key[0].format(e.key)
		last := previous(e.keyEnd, e.set.key[0].size)
		if last == e.key {
			return first
		}
		return first + "-" + e.set.key[0].format(last)
	case e.keyEnd != "":
		last := e.set.key[len(e.set.key)-1]
		n := len(e.key) - last.size
		name := format(e.set.key, e.key)
		if e.key == e.keyEnd {
			return name
		}
		return name + "-" + last.format(e.keyEnd[n:])
	}
	return format(e.set.key, e.key)
}

// previous is the key before one; "" stands for the one behind the last.
func previous(key string, size int) string {
	b := []byte(key)
	if key == "" {
		b = make([]byte, size)
	}
	for i := len(b) - 1; i >= 0; i-- {
		b[i]--
		if b[i] != 0xff {
			break
		}
	}
	return string(b)
}

// scriptName gives an interval of interface names as the pattern it came from.
func scriptName(first, end string) string {
	name := strings.TrimRight(first, "\x00")
	if after, ok := next(first); ok && after == end {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%q", name+"*")
}
