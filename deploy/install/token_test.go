package install

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTokenIsLent: a server's first start has its token as a credential in a file that
// is root's alone; afterwards nothing that was installed has it.
func TestTokenIsLent(t *testing.T) {
	m := newMachine(t)
	const token = "server-abcdef.0123456789abcdef@sha256:00"
	m.options.Token, m.options.Args = token, []string{"--join=https://192.0.2.10:6443"}
	started := false
	m.options.Systemctl = func(args ...string) error {
		if slices.Contains(args, "restart") {
			started = true
			file := filepath.Join(m.options.Root, tokenFile)
			info, err := os.Stat(file)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Fatalf("the token's file: %v, %v", info, err)
			}
			dropIn, err := os.ReadFile(filepath.Join(m.options.Root, "run/systemd/system/fairway-server.service.d/join.conf"))
			if err != nil || string(dropIn) != "[Service]\nLoadCredential=fairway-token:/run/fairway-join-token\n" {
				t.Errorf("the unit's drop-in: %q, %v", dropIn, err)
			}
			m.write(filepath.Join(m.options.Root, dataFolder, "server.json"), `{"name":"s2","stored":true}`)
		}
		for _, a := range args {
			if strings.Contains(a, "0123456789abcdef") {
				t.Errorf("systemctl is told the token: %v", args)
			}
		}
		return nil
	}
	if err := Install(m.options); err != nil {
		t.Fatal(err)
	}
	if !started {
		t.Error("nothing was started")
	}
	for path, content := range m.tree() {
		if strings.Contains(content, "0123456789abcdef") {
			t.Errorf("%s has the token", path)
		}
	}
	if strings.Contains(m.said.String(), "0123456789abcdef") {
		t.Error("the token is printed")
	}
}
