package install

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a root to install into, whose systemd writes down what it is told.
type machine struct {
	t       *testing.T
	options Options
	told    []string
	said    strings.Builder
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t}
	root := t.TempDir()
	m.options = Options{
		Role: "server", Root: root, Program: filepath.Join(t.TempDir(), "fairway"), Out: &m.said,
		Manual: func(folder string) error {
			return os.WriteFile(filepath.Join(folder, "fairway.1"), []byte("manual"), 0o600)
		},
		Completion:  func(shell string, out io.Writer) error { _, err := io.WriteString(out, shell); return err },
		Systemctl:   func(args ...string) error { m.told = append(m.told, strings.Join(args, " ")); return nil },
		FindKubectl: func() (string, error) { return "", fs.ErrNotExist },
	}
	m.write(m.options.Program, "version 1")
	m.write(filepath.Join(root, "usr/local/share/man/man1/other.1"), "somebody else's")
	m.write(filepath.Join(root, "var/lib/other/data"), "somebody else's")
	return m
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// tree is every file and link below the root, with its content.
func (m *machine) tree() map[string]string {
	m.t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(m.options.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, m.options.Root)
		switch {
		case d.IsDir():
			tree[name] = "folder"
		case d.Type()&fs.ModeSymlink != 0:
			tree[name], err = os.Readlink(path)
		default:
			var text []byte
			text, err = os.ReadFile(path)
			tree[name] = string(text)
		}
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return tree
}

func (m *machine) install(args ...string) {
	m.t.Helper()
	m.options.Args = args
	if err := Install(m.options); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) uninstall(purge bool) {
	m.t.Helper()
	if err := Uninstall(m.options, purge, func() error { m.told = append(m.told, "cleanup"); return nil }); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) expectTold(want ...string) {
	m.t.Helper()
	if strings.Join(m.told, ", ") != strings.Join(want, ", ") {
		m.t.Errorf("systemd was told %q, want %q", m.told, want)
	}
	m.told = nil
}

// TestInstall: an installation, a newer version in place with the options of the
// first, and the removal of both leave the machine as it was.
func TestInstall(t *testing.T) {
	m := newMachine(t)
	before := m.tree()
	m.install("--bind-address=0.0.0.0")
	m.expectTold("daemon-reload", "enable fairway-server.service", "restart fairway-server.service")
	tree := m.tree()
	for path, want := range map[string]string{
		Binary: "version 1", binFolder + "/kubectl": "fairway", binFolder + "/kubectl-fairway": "fairway",
		manFolder + "/fairway.1": "manual", completions["zsh"]: "zsh",
	} {
		if tree[path] != want {
			t.Errorf("%s is %q, want %q", path, tree[path], want)
		}
	}
	if options := tree[settings+"/fairway-server"]; !strings.HasSuffix(options, "\nOPTIONS=\"--bind-address=0.0.0.0\"\n") {
		t.Errorf("options: %s", options)
	}
	m.write(m.options.Program, "version 2")
	m.install()
	m.expectTold("daemon-reload", "enable fairway-server.service", "restart fairway-server.service")
	newer := m.tree()
	if newer[Binary] != "version 2" || newer[settings+"/fairway-server"] != tree[settings+"/fairway-server"] {
		t.Errorf("the newer version is %q, with options %s", newer[Binary], newer[settings+"/fairway-server"])
	}
	m.options.Role = "up"
	if err := Install(m.options); err == nil || !strings.Contains(err.Error(), "installed as server") {
		t.Errorf("a second role: %v", err)
	}
	m.options.Role = "server"
	m.uninstall(true)
	m.expectTold("disable --now fairway-server.service", "cleanup", "daemon-reload")
	if after := m.tree(); !maps.Equal(before, after) {
		t.Errorf("%v\nis left, where %v was", after, before)
	}
}

// TestUninstallKeeps: without purge data and options stay, for another
// installation or for a purge; what somebody has changed stays in any case.
func TestUninstallKeeps(t *testing.T) {
	m := newMachine(t)
	m.install("--secure-port=7443")
	m.write(filepath.Join(m.options.Root, dataFolder, "etcd/db"), "Services")
	m.write(filepath.Join(m.options.Root, manFolder, "fairway.1"), "edited")
	m.uninstall(false)
	tree := m.tree()
	if tree[dataFolder+"/etcd/db"] != "Services" || !strings.Contains(tree[settings+"/fairway-server"], "7443") {
		t.Errorf("data or options are gone: %v", tree)
	}
	if tree[manFolder+"/fairway.1"] != "edited" || !strings.Contains(m.said.String(), manFolder+"/fairway.1, which was changed") {
		t.Errorf("the edited page is gone, or not named: %s", m.said.String())
	}
	if tree[Binary] != "" {
		t.Error("the program is still there")
	}
	if err := os.Remove(filepath.Join(m.options.Root, manFolder, "fairway.1")); err != nil {
		t.Fatal(err)
	}
	m.install()
	if options := m.tree()[settings+"/fairway-server"]; !strings.Contains(options, "7443") {
		t.Errorf("the second installation has lost the options: %s", options)
	}
	m.uninstall(false)
	m.uninstall(true)
	if tree := m.tree(); tree[dataFolder] != "" || tree[settings+"/fairway-server"] != "" {
		t.Errorf("left after a purge: %v", tree)
	}
	if err := Uninstall(m.options, true, func() error { return nil }); err == nil {
		t.Error("a third time is no error")
	}
}

// TestInstallRefuses: what others have put there is neither overwritten nor, after
// a failure half-way, removed.
func TestInstallRefuses(t *testing.T) {
	m := newMachine(t)
	unit := filepath.Join(unitFolder, UnitName("server"))
	m.write(filepath.Join(m.options.Root, unit), "somebody else's")
	before := m.tree()
	if err := Install(m.options); err == nil || !strings.Contains(err.Error(), unit+" is there already") {
		t.Errorf("over another's unit: %v", err)
	}
	m.options.Role = "nothing"
	if err := Install(m.options); err == nil || !strings.Contains(err.Error(), "server, agent, up") {
		t.Errorf("as nothing: %v", err)
	}
	m.options.Role, m.options.Args = "server", []string{"--token=a b"}
	if err := os.Remove(filepath.Join(m.options.Root, unit)); err != nil {
		t.Fatal(err)
	}
	if err := Install(m.options); err == nil || !strings.Contains(err.Error(), "--token=a b: systemd") {
		t.Errorf("with a blank in an option: %v", err)
	}
	m.options.Systemctl = func(...string) error { return errors.New("no bus") }
	m.options.Args = nil
	if err := Install(m.options); err == nil || !strings.Contains(err.Error(), "no bus") {
		t.Errorf("without systemd's answer: %v", err)
	}
	m.options.Systemctl = func(...string) error { return nil }
	m.uninstall(true)
	delete(before, unit)
	if after := m.tree(); !maps.Equal(before, after) {
		t.Errorf("%v\nis left, where %v was", after, before)
	}
}
