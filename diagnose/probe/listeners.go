package probe

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
)

// AtLoopback finds a process that listens at the port at a loopback address only,
// in the network namespace of this machine that has the address: it is the usual
// reason for a refusal by a pod that runs. It looks at processes that this user may
// look at; an invalid result says that it found none.
func (p Prober) AtLoopback(to netip.AddrPort) netip.AddrPort {
	ns := p.near(to.Addr())
	if ns == nil {
		return netip.AddrPort{}
	}
	defer ns.Close() //nolint:errcheck // nothing was done in it
	id := inodeOf(ns)
	for _, dir := range namespaces("/proc") { // which needs no right to enter
		if here, err := os.Readlink(filepath.Join(filepath.Dir(dir), "ns", "net")); err == nil && here == id {
			return atLoopback(dir, to.Port())
		}
	}
	return netip.AddrPort{}
}

// inodeOf is a namespace as /proc/PID/ns/net names it; "" if it can't be told.
func inodeOf(ns *netns.NS) string {
	var stat unix.Stat_t
	if err := unix.Fstat(ns.Fd(), &stat); err != nil {
		return ""
	}
	return fmt.Sprintf("net:[%d]", stat.Ino)
}

// namespaces are the net directories of processes, one for each network namespace.
func namespaces(proc string) []string {
	links, err := filepath.Glob(filepath.Join(proc, "[0-9]*/ns/net"))
	if err != nil {
		return nil
	}
	seen := map[string]bool{}
	var dirs []string
	for _, link := range links {
		if ns, err := os.Readlink(link); err == nil && !seen[ns] {
			seen[ns] = true
			dirs = append(dirs, filepath.Join(filepath.Dir(filepath.Dir(link)), "net"))
		}
	}
	return dirs
}

// hasAddress reports whether an interface of the namespace has an address.
func hasAddress(dir string, a netip.Addr) bool {
	if a.Is6() {
		bytes16 := a.As16()
		text, err := os.ReadFile(filepath.Join(dir, "if_inet6"))
		return err == nil && bytes.Contains(text, []byte(hex.EncodeToString(bytes16[:])))
	}
	text, err := os.ReadFile(filepath.Join(dir, "fib_trie"))
	if err != nil {
		return false
	}
	_, local, found := strings.Cut(string(text), "|-- "+a.String()+"\n")
	return found && strings.HasPrefix(strings.TrimSpace(local), "/32 host LOCAL")
}

// atLoopback finds a listener at a port at loopback in /proc/PID/net/tcp and tcp6.
func atLoopback(dir string, port uint16) netip.AddrPort {
	for _, file := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			words := strings.Fields(lines.Text())
			if len(words) < 4 || words[3] != listening {
				continue
			}
			if at, err := parseSocket(words[1]); err == nil && at.Port() == port && at.Addr().Unmap().IsLoopback() {
				return at
			}
		}
	}
	return netip.AddrPort{}
}

// listening is TCP_LISTEN (include/net/tcp_states.h).
const listening = "0A"

// parseSocket reads "0100007F:1F90": words of four bytes in the machine's order,
// which is little-endian wherever this runs.
func parseSocket(text string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(address)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read socket %q: %w", text, err)
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	n, err := strconv.ParseUint(port, 16, 16)
	a, ok := netip.AddrFromSlice(raw)
	if err != nil || !ok {
		return netip.AddrPort{}, fmt.Errorf("read socket %q", text)
	}
	return netip.AddrPortFrom(a, uint16(n)), nil
}
