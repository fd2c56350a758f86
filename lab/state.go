package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/internal/keptfile"
	"github.com/fairway-net/fairway/lab/topology"
)

// stateRoot holds a directory for each lab: state.json, the kubeconfigs, the
// API server's data, and logs.
const stateRoot = "/run/fairway/lab"

// Dir is a lab's state directory.
func Dir(name string) string { return filepath.Join(stateRoot, name) }

// NameOf is the name of the lab that a kubeconfig belongs to; DefaultName if it is no lab's.
func NameOf(kubeconfig string) string {
	dir := filepath.Dir(kubeconfig)
	if name := filepath.Base(dir); kubeconfig == Kubeconfig(name) {
		return name
	}
	return DefaultName
}

// makeDir makes the directory of a lab. It is root's alone: it has an administrator's
// kubeconfig, and files of pods, which run as root.
func makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(dir, 0o700)
}

// Kubeconfig is the administrator's kubeconfig of a lab, for use on the host.
func Kubeconfig(name string) string { return filepath.Join(Dir(name), "kubeconfig") }

// State is what a supervisor leaves for other commands to read.
type State struct {
	Config     Config    `json:"config"`
	Supervisor process   `json:"supervisor"`
	Ready      bool      `json:"ready"` // the lab has come up
	Started    time.Time `json:"started"`
}

// process tells a process from a later one with the same id.
type process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // field 22 of /proc/PID/stat
}

// self is the calling process.
func self() (process, error) {
	start, err := startTime(os.Getpid())
	return process{os.Getpid(), start}, err
}

// alive says whether the process still runs.
func (p process) alive() bool {
	start, err := startTime(p.PID)
	return err == nil && start == p.Start
}

// signal sends the process a signal; one that has ended is no error.
func (p process) signal(s syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	if err := syscall.Kill(p.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// startTime is when a process started, in clock ticks after boot (proc(5)).
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", err
	}
	// The second field, the command's name, may hold blanks and parentheses.
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ")
	fields := strings.Fields(rest)
	const starttime, first = 22, 3
	if len(fields) <= starttime-first || fields[0] == "Z" {
		return "", fmt.Errorf("process %d: ended", pid)
	}
	return fields[starttime-first], nil
}

// save writes the state, all of it or nothing.
func (s State) save() error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	path := filepath.Join(Dir(s.Config.Name), "state.json")
	return keptfile.Write(path, append(data, '\n'), 0o644)
}

// Load reads a lab's state. A lab that isn't there is fs.ErrNotExist.
func Load(name string) (State, error) {
	var s State
	if err := topology.CheckName(name); err != nil {
		return s, err
	}
	data, err := os.ReadFile(filepath.Join(Dir(name), "state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return s, notThere{name}
	}
	if err != nil {
		return s, fmt.Errorf("read state of lab %s: %w", name, err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("read state of lab %s: %w", name, err)
	}
	return s, nil
}

// notThere says what to do about a lab that isn't there.
type notThere struct{ name string }

func (e notThere) Error() string {
	return fmt.Sprintf("there is no lab %q: make one with `fairway lab up --name %s`", e.name, e.name)
}

func (e notThere) Is(target error) bool { return target == fs.ErrNotExist }

// List names the labs that have left state here.
func List() ([]string, error) {
	entries, err := os.ReadDir(stateRoot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list labs: %w", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}
