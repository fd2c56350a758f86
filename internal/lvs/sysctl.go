package lvs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairway-net/fairway/internal/keptfile"
	"github.com/fairway-net/fairway/internal/kernel"
)

// SettingsKeeper sets what IPVS needs of the node's sysctls and timeouts, and
// remembers in a file what they were.
type SettingsKeeper struct {
	file     string
	Balancer Balancer
	options  kernel.IPVSOptions
	Sysctls  []Sysctl // that must have a value
	quiet    bool     // ARP has been seen to
}

// NewSettingsKeeper has the settings kept that options ask for.
func NewSettingsKeeper(o kernel.Options, b Balancer) *SettingsKeeper {
	return &SettingsKeeper{file: filepath.Join(o.StateDir, "ipvs-settings.json"), Balancer: b, options: o.IPVS, Sysctls: Sysctls()}
}

// kept is the file's content.
type kept struct {
	Sysctls map[string]change `json:"sysctls,omitempty"` // by path below /proc/sys
	TCP     *timeoutChange    `json:"tcpTimeout,omitempty"`
	TCPFin  *timeoutChange    `json:"tcpFinTimeout,omitempty"`
	UDP     *timeoutChange    `json:"udpTimeout,omitempty"`
}

// change is what a setting was and what it was made.
type change struct{ Was, Set string }

// Sysctl is one that must have a value.
type Sysctl struct{ Path, Value string }

// earlyDemux has the kernel look for a packet's socket before it routes it, and that is
// before IPVS gives an answer to this node's own client the Service's address
// (ip_rcv_finish, and NF_INET_LOCAL_IN). So the answer would go to the socket of another
// connection from the same port to the same backend, if there is one or was within the
// last minute, and the client would wait in vain.
var earlyDemux = []string{"net/ipv4/tcp_early_demux", "net/ipv4/udp_early_demux"} // for IPv6 too

// Sysctls are needed for translation and masquerading by conntrack, and for
// connections of gone backends to end.
func Sysctls() []Sysctl {
	list := []Sysctl{
		{"net/ipv4/vs/conntrack", "1"},
		{"net/ipv4/vs/expire_nodest_conn", "1"},
		{"net/ipv4/vs/expire_quiescent_template", "1"},
	}
	for _, path := range earlyDemux {
		if _, err := os.Stat("/proc/sys/" + path); err == nil { // since Linux 4.12
			list = append(list, Sysctl{path, "0"})
		}
	}
	if !kernel.AtLeast(5, 9) {
		// Before Linux 5.9, a reused port costs the client a second (kernel
		// commit f0a5e4d7a594, kubernetes issue 81775).
		list = append(list, Sysctl{"net/ipv4/vs/conn_reuse_mode", "0"})
	}
	return list
}

// QuietSysctls keep this node from answering ARP for addresses of kube-ipvs0,
// which another node may have been chosen to announce.
var QuietSysctls = []Sysctl{{"net/ipv4/conf/all/arp_ignore", "1"}, {"net/ipv4/conf/all/arp_announce", "2"}}

// Set makes all settings right.
func (k *SettingsKeeper) Set() error {
	if err := k.SetSysctls(k.Sysctls); err != nil {
		return err
	}
	if k.options.StrictARP {
		if err := k.QuietARP(); err != nil {
			return err
		}
	}
	return k.SetTimeouts()
}

// QuietARP sets the QuietSysctls, once.
func (k *SettingsKeeper) QuietARP() error {
	if k.quiet {
		return nil
	}
	if err := k.SetSysctls(QuietSysctls); err != nil {
		return err
	}
	k.quiet = true
	return nil
}

// SetSysctls makes these right, and remembers what they were.
func (k *SettingsKeeper) SetSysctls(list []Sysctl) error {
	for _, s := range list {
		was, err := ReadSysctl(s.Path)
		if err != nil {
			return &kernel.MissingError{What: "sysctl " + strings.ReplaceAll(s.Path, "/", "."), Err: err}
		}
		if was == s.Value {
			continue
		}
		if err := k.remember(func(old *kept) error {
			if _, known := old.Sysctls[s.Path]; !known {
				old.Sysctls[s.Path] = change{was, s.Value}
			}
			return nil
		}); err != nil {
			return err
		}
		if err := writeSysctl(s.Path, s.Value); err != nil {
			return err
		}
	}
	return nil
}

// Restore puts back what was changed and nobody has changed since.
func (k *SettingsKeeper) Restore() error {
	old, err := k.load()
	if err != nil {
		return err
	}
	var problems []error
	for path, c := range old.Sysctls {
		now, err := ReadSysctl(path)
		if err == nil && now == c.Set {
			err = writeSysctl(path, c.Was)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, err)
		}
	}
	if err := k.restoreTimeouts(old); err != nil {
		problems = append(problems, err)
	}
	k.quiet = false
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	if err := os.Remove(k.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget former settings: %w", err)
	}
	return nil
}

func (k *SettingsKeeper) load() (*kept, error) {
	old := &kept{Sysctls: map[string]change{}}
	content, err := keptfile.Load(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return old, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read former settings: %w", err)
	}
	if err := json.Unmarshal(content, old); err != nil {
		return nil, fmt.Errorf("read former settings from %s: %w", k.file, err)
	}
	if old.Sysctls == nil {
		old.Sysctls = map[string]change{}
	}
	return old, nil
}

// remember edits the file, if there is something to edit.
func (k *SettingsKeeper) remember(edit func(*kept) error) error {
	old, err := k.load()
	if err != nil {
		return err
	}
	before, err := json.Marshal(old)
	if err != nil {
		return fmt.Errorf("remember former settings: %w", err)
	}
	if err := edit(old); err != nil {
		return err
	}
	after, err := json.Marshal(old)
	if err != nil {
		return fmt.Errorf("remember former settings: %w", err)
	}
	if bytes.Equal(before, after) {
		return nil
	}
	content, err := json.MarshalIndent(old, "", "  ")
	if err != nil {
		return fmt.Errorf("remember former settings: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(k.file), 0o755); err != nil {
		return fmt.Errorf("remember former settings: %w", err)
	}
	if err := keptfile.Save(k.file, content, 0o600); err != nil {
		return fmt.Errorf("remember former settings: %w", err)
	}
	return nil
}

// ReadSysctl is the value of one, by its path below /proc/sys.
func ReadSysctl(path string) (string, error) {
	content, err := os.ReadFile("/proc/sys/" + path)
	return strings.TrimSpace(string(content)), err
}

func writeSysctl(path, value string) error {
	if err := os.WriteFile("/proc/sys/"+path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", strings.ReplaceAll(path, "/", "."), value, err)
	}
	return nil
}
