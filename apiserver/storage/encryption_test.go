package storage

import (
	"path/filepath"
	"testing"
)

// TestNewKeyInTwoSteps: a new key reads before it writes, and what was written with the
// old one stays readable.
func TestNewKeyInTwoSteps(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secrets.keys")
	names := func() []string {
		t.Helper()
		list, err := KeyNames(file)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if _, err := Encryption(file); err != nil {
		t.Fatal(err)
	}
	old := names()
	if err := UseLastEncryptionKey(file); err == nil {
		t.Error("there is one key only")
	}
	if err := AddEncryptionKey(file); err != nil {
		t.Fatal(err)
	}
	both := names()
	if len(both) != 2 || both[0] != old[0] {
		t.Errorf("keys %v, before %v: the new one must not be written with yet", both, old)
	}
	if err := UseLastEncryptionKey(file); err != nil {
		t.Fatal(err)
	}
	if now := names(); len(now) != 2 || now[0] != both[1] || now[1] != old[0] {
		t.Errorf("keys %v, before %v", now, both)
	}
}

func TestKeyOf(t *testing.T) {
	for value, want := range map[string]string{encryptedPrefix + "abc:\x00\x01:": "abc", "k8s\x00": "", "": "", encryptedPrefix: ""} {
		if got, _ := keyOf([]byte(value)); got != want {
			t.Errorf("%q: %q", value, got)
		}
	}
}
