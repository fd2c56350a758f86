package realcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/lab/topology"
)

// waitTimeout is how long a busy machine may take for what takes it seconds.
const waitTimeout = 2 * time.Minute

// Node is a machine of the cluster.
type Node struct {
	*topology.Node
	cluster *Cluster
	disk    string
	first   *exec.Cmd     // its first process
	ended   chan struct{} // closed once that has ended
}

// start boots the node.
func (n *Node) start() error {
	c := n.cluster
	if err := makeGroups(c.hierarchies, c.name, n.Name); err != nil {
		return err
	}
	b := boot{Node: n.Name, Disk: n.disk, Programs: c.options.Programs, Groups: n.groups(), Hierarchies: c.hierarchies}
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(n.disk, "console"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	n.first = exec.Command("/proc/self/exe")
	n.first.Env = []string{bootEnv + "=" + string(text), "PATH=" + os.Getenv("PATH")}
	n.first.Stdout, n.first.Stderr = out, out
	n.first.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := n.NS.Start(n.first); err != nil {
		return fmt.Errorf("start node %s: %w", n.Name, err)
	}
	ended := make(chan struct{})
	n.ended = ended
	go func(first *exec.Cmd) {
		_ = first.Wait() // killed, or the console says why
		close(ended)
	}(n.first)
	return n.await("containerd", "ctr", "version")
}

func (n *Node) groups() (dirs []string) {
	for _, h := range n.cluster.hierarchies {
		dirs = append(dirs, h.group(n.cluster.name, n.Name))
	}
	return dirs
}

// await runs a command in the node until it succeeds.
func (n *Node) await(what string, command ...string) error {
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(200 * time.Millisecond) {
		out, err := n.Run(command...)
		if err == nil {
			return nil
		}
		select {
		case <-n.ended:
			console, _ := os.ReadFile(filepath.Join(n.disk, "console"))
			return fmt.Errorf("node %s has ended: %s", n.Name, console)
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s of %s doesn't come up: %w: %s", what, n.Name, err, out)
		}
	}
}

// enter is a shell script that starts a command in the node. Its arguments are the node's
// first process, the node's cgroups, "--" and the command.
const enter = `pid=$1; shift
while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit; shift; done; shift
exec nsenter --target "$pid" --all env PATH="$PATH" "$@"`

// Command is a command that runs in the node, with all its namespaces and cgroups.
func (n *Node) Command(ctx context.Context, command ...string) *exec.Cmd {
	args := append([]string{"-c", enter, "sh", strconv.Itoa(n.first.Process.Pid)}, n.groups()...)
	cmd := exec.CommandContext(ctx, "sh", append(append(args, "--"), command...)...)
	cmd.Env = []string{"PATH=" + n.cluster.options.Programs + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	return cmd
}

// Run runs a command in the node and returns what it prints.
func (n *Node) Run(command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	out, err := n.Command(ctx, command...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// must runs a command in the node that has to succeed.
func (n *Node) must(command ...string) error {
	if out, err := n.Run(command...); err != nil {
		return fmt.Errorf("%s: %s: %w\n%s", n.Name, strings.Join(command, " "), err, out)
	}
	return nil
}

// write puts a file onto the node's disk, as if it had always been there.
func (n *Node) write(path, text string) error {
	file := filepath.Join(n.disk, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// stop takes the node's power away: all its processes are gone at once.
func (n *Node) stop() error {
	if n.first == nil {
		return nil
	}
	if err := n.first.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop node %s: %w", n.Name, err)
	}
	<-n.ended
	n.first = nil
	return nil
}

// Reboot takes the node's power away, empties its network of all that a boot
// forgets, and boots it.
func (n *Node) Reboot() error {
	if err := n.stop(); err != nil {
		return err
	}
	if err := n.forget(); err != nil {
		return fmt.Errorf("reboot %s: %w", n.Name, err)
	}
	return n.start()
}

// Kill ends processes of the node by name, as SIGKILL does.
func (n *Node) Kill(name string) error { return n.must("pkill", "-KILL", "-x", name) }

// Log is the end of the log of containerd or the kubelet.
func (n *Node) Log(name string) string {
	text, err := os.ReadFile(filepath.Join(n.disk, "plain/var/log", name+".log"))
	if err != nil {
		return err.Error()
	}
	if len(text) > 4000 {
		text = text[len(text)-4000:]
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	return string(text)
}
