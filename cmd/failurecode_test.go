package cmd

import (
	"io"
	"strings"
	"testing"
)

// TestFailureCode: commands that answer a question say no with 1, and anything that they don't
// understand with 2.
func TestFailureCode(t *testing.T) {
	for line, want := range map[string]int{
		"explain": 2, "explain svc/web --nonsense": 2, "doctor --nonsense": 2, "dump a b": 2, "trace": 2, "flows extra": 2,
		"render --nonsense": 1, "nonsense": 1,
	} {
		c := calledAs("fairway", strings.Fields(line))
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		ran, err := c.ExecuteContextC(t.Context())
		if err == nil || failureCode(ran) != want {
			t.Errorf("%s: code %d, want %d; error %v", line, failureCode(ran), want, err)
		}
	}
}
