package machine

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func settings() Settings {
	return Settings{Server: netip.MustParseAddr("10.96.0.10"), Domains: []string{"cluster.local", "example.lan"}, Search: []string{"default.svc.cluster.local"}}
}

func newMachine(t *testing.T) (*Machine, *[]string) {
	var calls []string
	m := &Machine{Root: t.TempDir(), Systemctl: func(args ...string) error { calls = append(calls, strings.Join(args, " ")); return nil }}
	if err := os.MkdirAll(m.path("/etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	return m, &calls
}

func (m *Machine) text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(m.path(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// tree is all files below the root, with modes and what links lead to.
func (m *Machine) tree(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(m.Root, func(path string, info os.FileInfo, err error) error {
		if err != nil || strings.Contains(path, "/var") || info.IsDir() {
			return err
		}
		target, _ := os.Readlink(path)
		data, _ := os.ReadFile(path)
		b.WriteString(path + " " + info.Mode().String() + " " + target + "\n" + string(data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestExactUndoing: whatever was there is there again, byte for byte, also after
// a second install.
func TestExactUndoing(t *testing.T) {
	for name, set := range map[string]func(*Machine) error{
		"file": func(m *Machine) error {
			return os.WriteFile(m.path(resolvConf), []byte("# mine\nnameserver 192.0.2.53\nsearch example.org\noptions ndots:2"), 0o640)
		},
		"link": func(m *Machine) error {
			if err := os.WriteFile(m.path("/etc/real"), []byte("nameserver 192.0.2.53\n"), 0o644); err != nil {
				return err
			}
			return os.Symlink("real", m.path(resolvConf))
		},
		"none": func(*Machine) error { return nil },
		"resolved": func(m *Machine) error {
			return os.Symlink("../run/systemd/resolve/stub-resolv.conf", m.path(resolvConf))
		},
	} {
		m, calls := newMachine(t)
		if err := set(m); err != nil {
			t.Fatal(err)
		}
		was := m.tree(t)
		for range 2 {
			if said, err := m.Install(settings()); err != nil || !strings.Contains(said, "10.96.0.10") {
				t.Fatalf("%s: %s, %v", name, said, err)
			}
		}
		file := resolvConf
		if name == "resolved" {
			file = dropIn
			if got := m.text(t, file); !strings.Contains(got, "DNS=10.96.0.10\nDomains=~cluster.local ~example.lan default.svc.cluster.local\n") || len(*calls) != 2 {
				t.Errorf("%s: %q, %v", name, got, *calls)
			}
		} else if got := m.text(t, file); !strings.HasPrefix(got, header+"nameserver 10.96.0.10\n") || !strings.Contains(got, "default.svc.cluster.local") ||
			name != "none" && !strings.Contains(got, "nameserver 192.0.2.53\n") {
			t.Errorf("%s: %q", name, got)
		}
		if said, err := m.Uninstall(); err != nil || !strings.Contains(said, "as it was before") {
			t.Fatalf("%s: %s, %v", name, said, err)
		}
		if now := m.tree(t); now != was {
			t.Errorf("%s: was\n%s\nis\n%s", name, was, now)
		}
		if said, err := m.Uninstall(); err != nil || said != "nothing is installed" {
			t.Errorf("%s: %s, %v", name, said, err)
		}
	}
}

// TestChangedSince: what somebody else has written since stays.
func TestChangedSince(t *testing.T) {
	m, _ := newMachine(t)
	if _, err := m.Install(settings()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.path(resolvConf), []byte("nameserver 192.0.2.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if said, err := m.Uninstall(); err != nil || !strings.Contains(said, "stays as it is") || m.text(t, resolvConf) != "nameserver 192.0.2.1\n" {
		t.Errorf("%s, %v", said, err)
	}
}
