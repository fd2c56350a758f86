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

// TestChallengeAt: a challenge is answered at the Gateway to which its host leads, and at
// no other one.
func TestChallengeAt(t *testing.T) {
	c := &Challenges{Tokens: map[string]string{"a": "1", "b": "2"}, At: map[string]string{"a": "shop/gw kube-system/ingress"}}
	for socket, want := range map[string]string{"shop/gw:80": "12", "kube-system/ingress:80": "12", "system/ingress:80": "2", "shop/gw2:80": "2", "evil/gw:80": "2", "evil-shop/gw:80": "2"} {
		a, _ := c.Answer(ChallengePath+"a", socket)
		b, _ := c.Answer(ChallengePath+"b", socket)
		if a+b != want {
			t.Errorf("%s answers %q and %q", socket, a, b)
		}
	}
}
