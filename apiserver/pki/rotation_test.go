package pki

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// believes reports whether who trusts the certificates of PEM believes a chain.
func believes(t *testing.T, trusted []byte, p Pair) bool {
	t.Helper()
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	var chain []*x509.Certificate
	for _, block := range blocks(p.Cert) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		chain = append(chain, c)
	}
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

// step takes a step of a replacement, and then once more, as after an interruption.
func step(t *testing.T, dir, name string, do func(*Rotation) error, want Phase, keys int) *Rotation {
	t.Helper()
	for range 2 {
		r, err := OpenRotation(dir, name)
		if err == nil {
			err = errors.Join(do(r), r.Write(dir))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := OpenRotation(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	if r.Phase != want || len(r.KeyIDs) != keys {
		t.Fatalf("phase %q with keys %v, want %q with %d", r.Phase, r.KeyIDs, want, keys)
	}
	return r
}

// TestReplaceAuthorities: in each phase old and new believe each other, who knows only the
// old authority of servers believes them to the end, and what the old one of clients
// signed is nobody's afterwards. It can be done again.
func TestReplaceAuthorities(t *testing.T) {
	dir := t.TempDir()
	open := func() *Authorities {
		a, err := OpenAll(dir)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	serving := func(a *Authorities) Pair {
		p, err := a.Servers.Server("fairway-apiserver", nil, []string{"kubernetes"})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	client := func(a *Authorities) Pair {
		p, err := a.Clients.Client("anna")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for range 2 {
		old := open()
		for _, s := range []struct {
			do   func(*Rotation) error
			want Phase
			keys int
		}{{(*Rotation).Trust, Trusted, 2}, {(*Rotation).Use, Used, 2}, {(*Rotation).Finish, Steady, 1}} {
			before := open()
			var first []string
			for _, name := range []string{ServersName, ClientsName, PeersName} {
				first = append(first, step(t, dir, name, s.do, s.want, s.keys).KeyIDs[0])
			}
			now := open()
			if !believes(t, old.Servers.CertPEM, serving(now)) || !believes(t, now.Servers.CertPEM, serving(before)) && s.want != Steady {
				t.Errorf("%s: clients and servers don't believe each other", s.want)
			}
			if s.want != Steady && (!believes(t, now.Clients.CertPEM, client(old)) || !believes(t, before.Clients.CertPEM, client(now)) && s.want != Trusted) {
				t.Errorf("%s: servers don't believe clients", s.want)
			}
			if !slices.Equal(first, []string{now.Servers.KeyIDs()[0], now.Clients.KeyIDs()[0], now.Peers.KeyIDs()[0]}) {
				t.Errorf("%s: the authorities sign with other keys than %v", s.want, first)
			}
		}
		now := open()
		if believes(t, now.Clients.CertPEM, client(old)) || !believes(t, now.Clients.CertPEM, client(now)) || old.Clients.KeyIDs()[0] == now.Clients.KeyIDs()[0] {
			t.Error("the old authority of clients is trusted still, or the new one isn't")
		}
	}
}

// TestReplaceInterrupted: where a step was cut off between its two files, the authority is
// the one before, and the step can be taken again.
func TestReplaceInterrupted(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenAll(dir); err != nil {
		t.Fatal(err)
	}
	certs := filepath.Join(dir, ClientsName+".crt")
	for _, s := range []struct {
		do   func(*Rotation) error
		want Phase
		keys int
	}{{(*Rotation).Trust, Trusted, 2}, {(*Rotation).Use, Used, 2}, {(*Rotation).Finish, Steady, 1}} {
		crt, err := os.ReadFile(certs)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := os.ReadFile(filepath.Join(dir, ClientsName+".key"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := OpenRotation(dir, ClientsName)
		if err == nil {
			err = errors.Join(s.do(r), r.Write(dir))
		}
		if err != nil {
			t.Fatal(err)
		}
		if s.want == Steady { // certificates were written, and keys not yet
			err = os.WriteFile(filepath.Join(dir, ClientsName+".key"), keys, 0o600)
		} else {
			err = os.WriteFile(certs, crt, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := OpenAll(dir); err != nil {
			t.Fatalf("interrupted before %q: %v", s.want, err)
		}
		step(t, dir, ClientsName, s.do, s.want, s.keys)
	}
}

// TestReplaceAccountKeys: the same for the keys of ServiceAccounts.
func TestReplaceAccountKeys(t *testing.T) {
	dir := t.TempDir()
	old, err := TokenKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	step(t, dir, AccountKeys, (*Rotation).Trust, Trusted, 2)
	if keys, err := TokenKeys(dir); err != nil || len(keys) != 2 || !keys[0].Equal(old[0]) {
		t.Errorf("the old key must sign: %v", err)
	}
	step(t, dir, AccountKeys, (*Rotation).Use, Used, 2)
	if keys, err := TokenKeys(dir); err != nil || len(keys) != 2 || keys[0].Equal(old[0]) || !keys[1].Equal(old[0]) {
		t.Errorf("the new key must sign, and the old one be trusted: %v", err)
	}
	step(t, dir, AccountKeys, (*Rotation).Finish, Steady, 1)
	if keys, err := TokenKeys(dir); err != nil || len(keys) != 1 || keys[0].Equal(old[0]) {
		t.Errorf("the old key must be forgotten: %v", err)
	}
}

// TestPrecedes: a server takes over the next step of the replacement that it is in, and
// neither an earlier one, as of a store that was restored, nor one of another.
func TestPrecedes(t *testing.T) {
	for _, name := range Rotated {
		dir := t.TempDir()
		if _, err := OpenAll(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := TokenKeys(dir); err != nil {
			t.Fatal(err)
		}
		open := func() *Rotation {
			r, err := OpenRotation(dir, name)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		states, other := []*Rotation{open()}, open()
		if err := other.Trust(); err != nil {
			t.Fatal(err)
		}
		for _, do := range []func(*Rotation) error{(*Rotation).Trust, (*Rotation).Use, (*Rotation).Finish} {
			r := open()
			if err := errors.Join(do(r), r.Write(dir)); err != nil {
				t.Fatal(err)
			}
			states = append(states, r)
		}
		for i, from := range states {
			for j, to := range states {
				if got := from.Precedes(to); got != (j == i+1) {
					t.Errorf("%s: step %d precedes step %d: %v", name, i, j, got)
				}
			}
			if got := from.Precedes(other); got != (i < 2) {
				t.Errorf("%s: step %d precedes another beginning: %v", name, i, got)
			}
		}
	}
}
