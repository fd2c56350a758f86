// Package machine makes a machine's own programs resolve the cluster's names, by
// systemd-resolved or by resolv.conf. It can undo this exactly.
package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fairway-net/fairway/internal/keptfile"
)

// Settings are what programs of the machine are to use.
type Settings struct {
	Server  netip.Addr // of the cluster's DNS
	Domains []string   // whose names it knows
	Search  []string   // domains to append to short names
}

// Machine is where the files are. Root is for tests; "" is the machine itself.
type Machine struct {
	Root      string
	Systemctl func(args ...string) error
}

const (
	resolvConf = "/etc/resolv.conf"
	dropIn     = "/etc/systemd/resolved.conf.d/fairway.conf"
	stateFile  = "/var/lib/fairway/dns/before.json"
	header     = "# Written by `fairway dns install`; `fairway dns uninstall` puts back what was here.\n"
)

// before is what there was before the first install.
type before struct {
	Kind    string      `json:"kind"` // file, link or none
	Target  string      `json:"target,omitempty"`
	Mode    fs.FileMode `json:"mode,omitempty"`
	Content []byte      `json:"content,omitempty"`
	Wrote   []byte      `json:"wrote"`            // what install has put there
	Folder  bool        `json:"folder,omitempty"` // install made the drop-in's folder
	// Resolved says that systemd-resolved was set up, and no file was replaced.
	Resolved bool `json:"resolved,omitempty"`
}

func (m *Machine) path(p string) string { return filepath.Join(m.Root, p) }

// Install sets the machine up, and says how. What there was is kept for Uninstall.
func (m *Machine) Install(s Settings) (string, error) {
	state, err := m.state()
	if err != nil {
		return "", err
	}
	if state != nil && state.Resolved || state == nil && m.usesResolved() {
		return m.installResolved(s, state)
	}
	return m.installFile(s, state)
}

// Uninstall puts back what there was before Install, and says so.
func (m *Machine) Uninstall() (string, error) {
	state, err := m.state()
	if err != nil {
		return "", err
	}
	if state == nil {
		return "nothing is installed", nil
	}
	said := ""
	if state.Resolved {
		said, err = m.uninstallResolved(state)
	} else {
		said, err = m.uninstallFile(state)
	}
	if err != nil {
		return "", err
	}
	if err := os.Remove(m.path(stateFile)); err != nil {
		return "", fmt.Errorf("forget what there was: %w", err)
	}
	return said, nil
}

// usesResolved reports whether programs ask systemd-resolved.
func (m *Machine) usesResolved() bool {
	target, err := os.Readlink(m.path(resolvConf))
	if err == nil && strings.Contains(target, "systemd/resolve/stub-resolv.conf") {
		return true
	}
	data, err := os.ReadFile(m.path(resolvConf))
	return err == nil && slices.Contains(strings.Fields(string(data)), "127.0.0.53")
}

func (m *Machine) installResolved(s Settings, state *before) (string, error) {
	var domains []string
	for _, d := range s.Domains {
		domains = append(domains, "~"+d)
	}
	domains = append(domains, s.Search...)
	text := header + "[Resolve]\nDNS=" + s.Server.String() + "\nDomains=" + strings.Join(domains, " ") + "\n"
	if state == nil {
		_, err := os.Stat(filepath.Dir(m.path(dropIn)))
		state = &before{Kind: "none", Resolved: true, Folder: errors.Is(err, fs.ErrNotExist)}
	}
	state.Wrote = []byte(text)
	if err := m.save(state); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(m.path(dropIn)), 0o755); err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	if err := keptfile.Write(m.path(dropIn), []byte(text), 0o644); err != nil {
		return "", err
	}
	if err := m.Systemctl("restart", "systemd-resolved.service"); err != nil {
		return "", err
	}
	return "systemd-resolved asks " + s.Server.String() + " for " + strings.Join(s.Domains, ", ") + " (" + dropIn + ")", nil
}

func (m *Machine) uninstallResolved(state *before) (string, error) {
	if err := os.Remove(m.path(dropIn)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("remove %s: %w", dropIn, err)
	}
	if state.Folder {
		_ = os.Remove(filepath.Dir(m.path(dropIn))) // unless others have put files there
	}
	if err := m.Systemctl("restart", "systemd-resolved.service"); err != nil {
		return "", err
	}
	return "systemd-resolved is as it was before", nil
}

// installFile puts the server in front of those that are there: these stay as
// the upstreams of the cluster's DNS, and for when it is away.
func (m *Machine) installFile(s Settings, state *before) (string, error) {
	if state == nil {
		var err error
		if state, err = m.look(); err != nil {
			return "", err
		}
	}
	// Whatever a link led to is what programs have read.
	original := state.Content
	if state.Kind == "link" {
		var err error
		target := state.Target
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(resolvConf), target)
		}
		if original, err = os.ReadFile(m.path(target)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("read %s: %w", target, err)
		}
	}
	state.Wrote = resolvText(original, s)
	if err := m.save(state); err != nil {
		return "", err
	}
	if err := m.put(state.Wrote, 0o644); err != nil {
		return "", err
	}
	return resolvConf + " asks " + s.Server.String() + " first, which asks the servers that were there for other names", nil
}

// look reads what there is.
func (m *Machine) look() (*before, error) {
	info, err := os.Lstat(m.path(resolvConf))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &before{Kind: "none"}, nil
	case err != nil:
		return nil, fmt.Errorf("look at %s: %w", resolvConf, err)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(m.path(resolvConf))
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", resolvConf, err)
		}
		return &before{Kind: "link", Target: target}, nil
	}
	data, err := os.ReadFile(m.path(resolvConf))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", resolvConf, err)
	}
	return &before{Kind: "file", Mode: info.Mode().Perm(), Content: data}, nil
}

// resolvText is the file with the server in front, and the search domains added.
// The C library heeds three servers.
func resolvText(original []byte, s Settings) []byte {
	var b bytes.Buffer
	b.WriteString(header + "nameserver " + s.Server.String() + "\n")
	searched := false
	for line := range strings.Lines(string(original)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 2 && fields[0] == "nameserver" && fields[1] == s.Server.String():
		case len(fields) >= 1 && (fields[0] == "search" || fields[0] == "domain") && len(s.Search) > 0:
			searched = true
			b.WriteString("search " + strings.Join(append(fields[1:], s.Search...), " ") + "\n")
		default:
			b.WriteString(strings.TrimRight(line, "\n") + "\n")
		}
	}
	if !searched && len(s.Search) > 0 {
		b.WriteString("search " + strings.Join(s.Search, " ") + "\n")
	}
	return b.Bytes()
}

func (m *Machine) uninstallFile(state *before) (string, error) {
	now, err := m.look()
	if err != nil {
		return "", err
	}
	if now.Kind != "file" || !bytes.Equal(now.Content, state.Wrote) {
		return resolvConf + " was changed by somebody else since; it stays as it is", nil
	}
	path := m.path(resolvConf)
	switch state.Kind {
	case "none":
		err = os.Remove(path)
	case "link":
		next := path + ".fairway"
		if err = os.Symlink(state.Target, next); err == nil {
			err = os.Rename(next, path)
		}
	default:
		err = m.put(state.Content, state.Mode)
	}
	if err != nil {
		return "", fmt.Errorf("put %s back: %w", resolvConf, err)
	}
	return resolvConf + " is as it was before", nil
}

// put replaces the file in one step; where it is a mount, as in containers, in place.
func (m *Machine) put(data []byte, mode fs.FileMode) error {
	path := m.path(resolvConf)
	err := keptfile.Write(path, data, mode)
	if errors.Is(err, syscall.EBUSY) {
		if err = os.WriteFile(path, data, mode); err != nil {
			return fmt.Errorf("write %s: %w", resolvConf, err)
		}
	}
	return err
}

// state is what there was before an install; nil if nothing is installed.
func (m *Machine) state() (*before, error) {
	data, err := keptfile.Load(m.path(stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what there was: %w", err)
	}
	b := &before{}
	if err := json.Unmarshal(data, b); err != nil {
		return nil, fmt.Errorf("read %s: %w", stateFile, err)
	}
	return b, nil
}

func (m *Machine) save(b *before) error {
	data, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("encode what there was: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(m.path(stateFile)), 0o755); err != nil {
		return fmt.Errorf("keep what there was: %w", err)
	}
	return keptfile.Save(m.path(stateFile), data, 0o600)
}
