package planes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairway-net/fairway/internal/kernel"
)

func TestParseCase(t *testing.T) {
	c, err := ParseCase("x", []byte(`# About
# this.

apply web.yaml
[not plane ipvs] [needs scheduler=rr] probe a tcp 10.96.0.1:80 x 9 -> one of b c:8081, source kept
flow f node udp node6:53 -> refused
-- web.yaml --
kind: Service
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Case{Name: "x", About: "About\nthis.\n", Files: map[string][]byte{"web.yaml": []byte("kind: Service\n")}, Steps: []Step{
		{Line: 4, Text: "apply web.yaml", Verb: "apply", Args: []string{"web.yaml"}},
		{
			Line: 5, Text: "probe a tcp 10.96.0.1:80 x 9 -> one of b c:8081, source kept",
			Verb: "probe", Args: []string{"a", "tcp", "10.96.0.1:80", "x", "9"},
			Conditions: []Condition{{Plane: "ipvs", Not: true}, {Needs: kernel.Scheduling, Value: "rr"}},
			Expect:     &Expectation{Outcome: Forwarded, Reach: One, Backends: []string{"b", "c:8081"}, Source: Kept},
		},
		{
			Line: 6, Text: "flow f node udp node6:53 -> refused", Verb: "flow", Args: []string{"f", "node", "udp", "node6:53"},
			Expect: &Expectation{Outcome: Refused},
		},
	}}
	if difference := cmp.Diff(want, c); difference != "" {
		t.Errorf("wanted (-) and parsed (+):\n%s", difference)
	}
}

func TestParseErrors(t *testing.T) {
	for script, complaint := range map[string]string{
		"":                                  "no steps",
		"jump":                              `line 1: unknown step "jump"`,
		"\n\nverify now":                    "line 3: verify: 1 arguments, must be 0 to 0",
		"apply x.yaml":                      `apply: no file "x.yaml"`,
		"probe a tcp 10.96.0.1:80":          "belongs to probe, flow, send and forgets",
		"verify -> same":                    "belongs to probe, flow, send and forgets",
		"probe a tcp 10.96.0.1:80 ->":       "expectation: empty",
		"probe a tcp 10.96.0.1:80 -> z":     `"z" is no outcome`,
		"probe a tcp 10.96.0.1:80 -> a:x":   `port "x"`,
		"probe a tcp 10.96.0.1:80 -> a, b":  `"b" must be`,
		"probe z tcp 10.96.0.1:80 -> a":     `host "z"`,
		"probe a ip 10.96.0.1:80 -> a":      `protocol "ip"`,
		"probe a tcp 10.96.0:80 -> a":       `host "10.96.0"`,
		"probe a tcp 10.96.0.1 -> a":        "must be ADDRESS:PORT",
		"probe a tcp 10.96.0.1:80 y 2 -> a": "must be x NUMBER",
		"[plane] verify":                    "condition [plane]",
		"[plane x verify":                   "no closing bracket",
		"delete pod default/x":              `kind "pod"`,
		"delete service x":                  "must be NAMESPACE/NAME",
		"endpoints default/x 80 a b6":       "one family only",
		"endpoints default/x 80 a=dead":     "must be unready",
		"endpoints default/x 80 localhost":  "must be a host",
		"endpoints default/x 80/icmp a":     `protocol "icmp"`,
		"verify\n-- a --\n-- a --\n":        `file "a" appears twice`,
	} {
		_, err := ParseCase("x", []byte(script))
		if err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("%q: %v, expected %q", script, err, complaint)
		}
	}
}

func TestCaseErrors(t *testing.T) {
	for script, complaint := range map[string]string{
		"config x=1":                            "x: must be one of cluster-cidr",
		"config masquerade-all=perhaps":         "masquerade-all: ",
		"node name=x":                           "the node has zone=",
		"delete service default/x":              "no service default/x",
		"send f -> same":                        `no flow "f"`,
		"apply x\n-- x --\nkind: Pod\n":         `document 1: kind "Pod"`,
		"apply x\n-- x --\nkind: Service\nx: 1": `unknown field "x"`,
	} {
		c, err := ParseCase("x", []byte(script))
		if err != nil {
			t.Fatal(err)
		}
		if err := Specify(c); err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("%q: %v, expected %q", script, err, complaint)
		}
	}
}

// FuzzParseCase: whatever is in a file, it is a case or an error; and a case
// says what is expected or that the table says something else.
func FuzzParseCase(f *testing.F) {
	paths, err := filepath.Glob("testdata/cases/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("[needs weights] [not plane x] probe a sctp [::1]:80 x 3 -> some of a b6:1, masqueraded"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCase("fuzz", data)
		if err != nil {
			return
		}
		if len(c.Steps) == 0 {
			t.Error("a case without steps")
		}
		for _, s := range c.Steps {
			if verbs[s.Verb].expects != (s.Expect != nil) {
				t.Errorf("step %q: expectation %+v", s.Text, s.Expect)
			}
		}
		_ = Specify(c) // must not panic
	})
}
