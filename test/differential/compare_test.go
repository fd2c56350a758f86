//go:build differential

package differential

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answer is what of an answer is compared.
type answer struct {
	code   int
	object map[string]any // nil if it was refused
	fields []string       // that the refusal names
	text   string
}

func parse(t *testing.T, code int, body []byte) answer {
	t.Helper()
	a := answer{code: code}
	if code < http.StatusBadRequest {
		if err := json.Unmarshal(body, &a.object); err != nil {
			t.Fatal(err)
		}
		return a
	}
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil {
		t.Fatalf("%d: %s", code, body)
	}
	a.text = status.Message
	if status.Details != nil {
		for _, c := range status.Details.Causes {
			a.fields = append(a.fields, index.ReplaceAllString(c.Field, "[]"))
		}
	}
	slices.Sort(a.fields)
	a.fields = slices.Compact(a.fields)
	return a
}

// given are fields whose values a server chooses.
var given = []string{".metadata.uid", ".metadata.creationTimestamp", ".metadata.resourceVersion", ".metadata.managedFields", ".metadata.generation", ".details.uid"}

// index is a place in a list.
var index = regexp.MustCompile(`\[\d+\]`)

// differ returns what two answers disagree on, each as a line that begins with the kind of
// difference and names the field without places in lists.
func differ(theirs, ours answer) []string {
	switch {
	case theirs.code < 400 && ours.code >= 400:
		return []string{fmt.Sprintf("refused %s", strings.Join(ours.fields, " "))}
	case theirs.code >= 400 && ours.code < 400:
		return []string{fmt.Sprintf("taken %s", strings.Join(theirs.fields, " "))}
	case theirs.code >= 400:
		if theirs.code != ours.code {
			return []string{fmt.Sprintf("code %d %d", theirs.code, ours.code)}
		}
		if !slices.Equal(theirs.fields, ours.fields) {
			return []string{fmt.Sprintf("fields %v %v", theirs.fields, ours.fields)}
		}
		return nil
	}
	return diffValues("", theirs.object, ours.object)
}

func diffValues(at string, theirs, ours any) []string {
	if slices.Contains(given, at) || strings.HasSuffix(at, "controller-uid") || reflect.DeepEqual(theirs, ours) {
		return nil
	}
	a, isMap := theirs.(map[string]any)
	b, bothMaps := ours.(map[string]any)
	if isMap && bothMaps {
		var out []string
		for key := range a {
			out = append(out, diffValues(at+"."+key, a[key], b[key])...)
		}
		for key := range b {
			if _, ok := a[key]; !ok {
				out = append(out, diffValues(at+"."+key, nil, b[key])...)
			}
		}
		slices.Sort(out)
		return out
	}
	c, isList := theirs.([]any)
	d, bothLists := ours.([]any)
	if isList && bothLists && len(c) == len(d) {
		var out []string
		for i := range c {
			out = append(out, diffValues(at+"[]", c[i], d[i])...)
		}
		return out
	}
	return []string{fmt.Sprintf("value %s %v %v", at, theirs, ours)}
}

// wanted are differences that are meant to be: a pattern of a kind, of a difference, and
// the reason.
type wanted struct{ kind, difference, reason string }

func readWanted(t *testing.T) []wanted {
	t.Helper()
	f, err := os.Open("testdata/wanted.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []wanted
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(line, " | ")
		if len(parts) != 3 {
			t.Fatalf("testdata/wanted.txt: %q isn't KIND | DIFFERENCE | REASON", line)
		}
		out = append(out, wanted{parts[0], parts[1], parts[2]})
	}
	return out
}

func isWanted(list []wanted, kind, difference string) bool {
	return slices.ContainsFunc(list, func(w wanted) bool {
		of, err := path.Match(w.kind, kind)
		is, _ := regexp.MatchString("^"+w.difference+"$", difference) // its error is in err of all others
		return err == nil && of && is
	})
}
