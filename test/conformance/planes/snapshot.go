package planes

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

// snapshot reads the node's kernel state.
func (s *Topology) snapshot() (snapshot, error) {
	shot := snapshot{}
	for _, read := range []func(snapshot) error{s.readRules, s.readNetwork, s.readIPVS, s.readSysctls, s.readBPF} {
		if err := read(shot); err != nil {
			return nil, fmt.Errorf("snapshot of the node: %w", err)
		}
	}
	return shot, nil
}

// readRules dumps what the usual tools show of netfilter. (nft shows what
// iptables-nft does, too.)
func (s *Topology) readRules(shot snapshot) error {
	dumps := [][]string{{"nft", "-j", "list", "ruleset"}}
	for command, names := range map[string]string{"iptables-legacy-save": "ip_tables_names", "ip6tables-legacy-save": "ip6_tables_names"} {
		text, err := s.proc(names)
		if err != nil {
			return err
		}
		if text != "" {
			dumps = append(dumps, []string{command})
		}
	}
	for _, command := range dumps {
		path, err := exec.LookPath(command[0])
		if err != nil {
			continue
		}
		var out, complaint bytes.Buffer
		cmd := exec.Command(path, command[1:]...)
		cmd.Stdout, cmd.Stderr = &out, &complaint
		if err := s.node.Start(cmd); err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%s: %w: %s", command[0], err, strings.TrimSpace(complaint.String()))
		}
		text, err := normalise(command[0], out.Bytes())
		if err != nil {
			return fmt.Errorf("%s: %w", command[0], err)
		}
		shot[strings.Join(command, " ")] = text
	}
	return nil
}

// proc reads a file of the node's /proc/net; one that isn't there is empty.
func (s *Topology) proc(name string) (string, error) {
	var text []byte
	err := s.node.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return string(text), err
}

// readIPVS lists virtual servers and their destinations, without the counts of
// connections.
func (s *Topology) readIPVS(shot snapshot) error {
	text, err := s.proc("ip_vs")
	if err != nil {
		return err
	}
	var servers []string
	for _, line := range split(text) {
		f := strings.Fields(line)
		if len(f) > 1 && (f[0] == "->" && f[1] != "RemoteAddress:Port" || slices.Contains([]string{"TCP", "UDP", "SCTP", "FWM"}, f[0])) {
			servers = append(servers, f[0]+" "+f[1])
		}
	}
	shot["ip_vs"] = strings.Join(servers, "\n")
	return nil
}

// difference says how b is different. Sysctls that came with a kernel module or
// went with an interface don't count.
func (a snapshot) difference(b snapshot) string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	var out strings.Builder
	for _, name := range slices.Compact(names) {
		was, before := a[name]
		is, after := b[name]
		if was == is || before != after && strings.HasPrefix(name, "/proc/") {
			continue
		}
		fmt.Fprintf(&out, "%s before (-) and after (+):\n%s\n", name, cmp.Diff(split(was), split(is)))
	}
	return out.String()
}

// volatile sysctls are counters, or can't be read.
var volatile = []string{"nf_conntrack_count", "tcp_fastopen_key", "stable_secret", "flush", "nf_log"}

func (s *Topology) readSysctls(shot snapshot) error {
	return s.node.Do(func() error {
		for _, root := range []string{"/proc/sys/net/ipv4", "/proc/sys/net/ipv6", "/proc/sys/net/netfilter"} {
			if err := filepath.WalkDir(root, shot.readSysctl); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	})
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
	if value, ok := readFile(path); ok {
		a[path] = strings.TrimSpace(value)
	}
	return nil // write-only ones and those that say EIO while unset
}

// readFile reads a sysctl, of which there are some thousand: os.ReadFile makes twice the calls of
// the kernel.
func readFile(path string) (value string, ok bool) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	buffer := make([]byte, 4096)
	n, err := unix.Read(fd, buffer)
	return string(buffer[:max(n, 0)]), err == nil
}

// forgetFlows empties the node's conntrack table, so that one case's flows
// can't meet the next case's.
func (s *Topology) forgetFlows() error {
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
func (s *Topology) Begin() (err error) {
	if s.before == nil {
		s.before, err = s.snapshot()
	}
	return err
}

// Left says what a removed plane has left on the node since Begin, and in its
// state directory, and forgets the flows of the case.
func (s *Topology) Left(stateDir string) error {
	if err := s.forgetFlows(); err != nil {
		return err
	}
	before := s.before
	after, err := s.snapshot()
	if err != nil {
		return err
	}
	s.before = after
	// What the site has happen meanwhile changes the node, too.
	if difference := before.difference(after); difference != "" && (s.site == nil || len(s.site.during) == 0) {
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
