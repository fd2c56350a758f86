package join

import "testing"

// FuzzTokens: a token that is taken is written as it was read, and is one of a machine or one of a server.
func FuzzTokens(f *testing.F) {
	machine := NewToken("sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
	server := machine
	server.Server = true
	f.Add(machine.String())
	f.Add(server.String())
	f.Add("a.b@sha256:")
	f.Fuzz(func(t *testing.T, text string) {
		m, isMachine := ParseToken(text)
		s, isServer := ParseServerToken(text)
		if isMachine == nil && isServer == nil {
			t.Fatalf("%q is taken for a machine's and for a server's", text)
		}
		for _, of := range []struct {
			token Token
			err   error
			read  func(string) (Token, error)
		}{{m, isMachine, ParseToken}, {s, isServer, ParseServerToken}} {
			if of.err != nil {
				continue
			}
			if again, err := of.read(of.token.String()); err != nil || again != of.token {
				t.Errorf("%q is %+v, and written as %q is %+v (%v)", text, of.token, of.token, again, err)
			}
		}
	})
}
