package join_test

import (
	"github.com/fairway-net/fairway/kube/join"
	"strings"
	"testing"
)

func TestNameProblem(t *testing.T) {
	for name, good := range map[string]bool{
		"n1": true, "n1.example.com": true, strings.Repeat("a", 63): true,
		"": false, "N1": false, "bad_name": false, "-n": false, "n..a": false, "n.": false, "n1/..": false,
		strings.Repeat("a", 64): false, strings.Repeat("a.", 40) + "a": false,
	} {
		if problem := join.NameProblem(name); (problem == "") != good {
			t.Errorf("%q: problem %q, want none: %v", name, problem, good)
		}
	}
}
