package keptfile

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSaveAndLoad(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f.json")
	want := []byte(`{"a": 1}`)
	if err := Save(name, want, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 0x20
		if err := os.WriteFile(name, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		// A file without a line that says its checksum may be an earlier version's: whoever
		// reads it finds no JSON then.
		if got, err := Load(name); err == nil && bytes.Equal(bytes.TrimSpace(got), want) {
			t.Errorf("byte %d is another, and nobody notices", i)
		}
	}
	if err := os.WriteFile(name, want, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("of an earlier version: %q, %v", got, err)
	}
}

func TestSetAside(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := Write(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := SetAside(name, errors.New("torn"), slog.New(slog.NewTextHandler(&out, nil))); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) || strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), name) {
		t.Errorf("%v: %s", err, out.String())
	}
}

// TestWriteLeavesNothing: a write that fails leaves the old file and no other.
func TestWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "f")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(folder, []byte("x"), 0o600); err == nil {
		t.Error("a folder was replaced")
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}
