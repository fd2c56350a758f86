package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vishvananda/netlink"
)

// snapshot is what a plane must leave as it found it: the output of commands
// and the sysctls of the node's namespace, by name.
type snapshot map[string]string

// dumps are the commands that show kernel state. Those that this machine
// doesn't have are left out.
var dumps = [][]string{
	{"nft", "-j", "list", "ruleset"},
	{"iptables-nft-save"},
	{"ip6tables-nft-save"},
	{"iptables-legacy-save"},
	{"ip6tables-legacy-save"},
	{"ipset", "save"},
	{"ipvsadm", "-S", "-n"},
	{"ip", "-o", "link", "show"},
	{"ip", "-o", "addr", "show"},
	{"ip", "-4", "rule", "show"},
	{"ip", "-6", "rule", "show"},
	{"ip", "-4", "route", "show", "table", "all"},
	{"ip", "-6", "route", "show", "table", "all"},
	{"tc", "qdisc", "show"},
}

// snapshot reads the node's kernel state.
func (s *Stage) snapshot() (snapshot, error) {
	shot := snapshot{}
	for _, command := range dumps {
		path, err := exec.LookPath(command[0])
		if err != nil {
			continue
		}
		var out, complaint bytes.Buffer
		cmd := exec.Command(path, command[1:]...)
		cmd.Stdout, cmd.Stderr = &out, &complaint
		if err := s.node.Start(cmd); err != nil {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
		if err := cmd.Wait(); err != nil {
			// A kernel without IP_VS or legacy tables has nothing to dump.
			shot[strings.Join(command, " ")] = ""
			continue
		}
		text, err := normalise(command[0], out.Bytes())
		if err != nil {
			return nil, fmt.Errorf("snapshot: %s: %w", strings.Join(command, " "), err)
		}
		shot[strings.Join(command, " ")] = text
	}
	sysctls, err := s.sysctls()
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	maps.Copy(shot, sysctls)
	return shot, nil
}

// difference says what is in b and wasn't in a, and the reverse. Sysctls that
// came with a kernel module, or went with an interface, don't count.
func (a snapshot) difference(b snapshot) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(a)) {
		now, still := b[name]
		if now == a[name] || !still && strings.HasPrefix(name, "/proc/") {
			continue
		}
		fmt.Fprintf(&out, "%s before (-) and after (+):\n%s\n", name, cmp.Diff(split(a[name]), split(now)))
	}
	return out.String()
}

// volatile sysctls are counters, or can't be read.
var volatile = []string{"nf_conntrack_count", "tcp_fastopen_key", "stable_secret", "flush", "nf_log"}

func (s *Stage) sysctls() (snapshot, error) {
	shot := snapshot{}
	err := s.node.Do(func() error {
		for _, root := range []string{"/proc/sys/net/ipv4", "/proc/sys/net/ipv6", "/proc/sys/net/netfilter"} {
			if err := filepath.WalkDir(root, shot.readSysctl); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	})
	return shot, err
}

func (a snapshot) readSysctl(path string, d fs.DirEntry, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // an interface went while we looked
	case err != nil:
		return err
	case slices.Contains(volatile, d.Name()):
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	case d.IsDir():
		return nil
	}
	value, err := os.ReadFile(path)
	if err == nil {
		a[path] = strings.TrimSpace(string(value))
	}
	return nil // write-only ones and those that say EIO while unset
}

// forgetFlows empties the node's conntrack table, so that one case's flows
// can't meet the next case's.
func (s *Stage) forgetFlows() error {
	h, err := s.node.NS.Netlink(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.ConntrackTableFlush(netlink.ConntrackTable); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("flush conntrack of the node: %w", err)
	}
	return nil
}

// Begin notes the node's kernel state, for Left to compare with.
func (s *Stage) Begin() (err error) {
	if s.before == nil {
		s.before, err = s.snapshot()
	}
	return err
}

// Left says what a removed plane has left on the node since Begin, and in its
// state directory, and forgets the flows of the case.
func (s *Stage) Left(stateDir string) error {
	if err := s.forgetFlows(); err != nil {
		return err
	}
	before := s.before
	after, err := s.snapshot()
	if err != nil {
		return err
	}
	s.before = after
	if difference := before.difference(after); difference != "" {
		return fmt.Errorf("removed, the plane left the node changed:\n%s", difference)
	}
	files, err := os.ReadDir(stateDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list the plane's state: %w", err)
	}
	for _, f := range files {
		return fmt.Errorf("removed, the plane left %s in its state directory", f.Name())
	}
	return nil
}
