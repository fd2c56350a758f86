package model

import "testing"

// TestOneLabel: what an asterisk stands for where it is one label.
func TestOneLabel(t *testing.T) {
	s := &Socket{OneLabel: true}
	for _, test := range []struct {
		hostname, name string
		want           bool
	}{
		{"", "a.b", true}, {"*", "a.b", true}, {"*.b", "a.b", true}, {"*.b", "c.a.b", false}, {"a.b", "a.b", true}, {"*.b", "b", false},
	} {
		if got := s.covers(test.hostname, test.name); got != test.want {
			t.Errorf("%q covers %q: %v", test.hostname, test.name, got)
		}
	}
}
