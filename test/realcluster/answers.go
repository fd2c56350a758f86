package realcluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Seen is what clients got from one proxy.
type Seen struct {
	Proxy   string // "kube-proxy", "nftables"
	Answers Answers
}

// Table is a table of Markdown: a line for each question, with clients and families that
// got the same from every proxy together, and what they got. It is sorted as the questions
// are.
func Table(questions []Question, seen []Seen) string {
	type line struct {
		question, answers string
		clients           []string
	}
	var lines []*line
	found := map[string]*line{}
	for _, q := range questions {
		var answers []string
		for _, s := range seen {
			answers = append(answers, s.Answers[q.String()])
		}
		question := fmt.Sprintf("%s, %s", q.Service, q.Way)
		fairway := "as kube-proxy's"
		if different := differing(seen, answers); len(different) > 0 {
			fairway = strings.Join(different, "; ")
		}
		text := answers[0] + " | " + fairway
		l := found[question+text]
		if l == nil {
			l = &line{question: question, answers: text}
			found[question+text], lines = l, append(lines, l)
		}
		if !slices.Contains(l.clients, q.Client.Name) {
			l.clients = append(l.clients, q.Client.Name)
		}
	}
	slices.SortStableFunc(lines, func(a, b *line) int { return cmp.Compare(a.question, b.question) })
	var b strings.Builder
	b.WriteString("| question | from | kube-proxy | Fairway |\n|---|---|---|---|\n")
	for _, l := range lines {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", l.question, strings.Join(l.clients, ", "), l.answers)
	}
	return b.String()
}

// differing are the answers that aren't the first proxy's, with whose they are.
func differing(seen []Seen, answers []string) (texts []string) {
	for i, a := range answers {
		if a != answers[0] {
			texts = append(texts, seen[i].Proxy+": "+a)
		}
	}
	return texts
}
