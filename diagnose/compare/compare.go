// Package compare compares what kernels hold with what agents have in force, on the nodes
// of the agents.
package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/dump"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// KindOf is what is known of the mode of an agent: nothing of modes that only other
// versions have.
func KindOf(a agentlink.Found) dataplane.Kind {
	kind, err := dataplane.Find(a.Status.Mode)
	if err != nil {
		return dataplane.Kind{Name: a.Status.Mode}
	}
	return kind
}

// Here compares what an agent has in force of a Service, NAMESPACE/NAME or "" for all, with
// the kernel of the network namespace that this process is in: see EnterNetworkOf.
func Here(ctx context.Context, agent *agentlink.Found, service string) (*dump.Report, error) {
	table, err := agent.Table(ctx)
	if err != nil {
		return nil, err
	}
	kind, err := dataplane.Find(agent.Status.Mode)
	if err != nil {
		return nil, err
	}
	options := agent.Status.Plane.Kernel()
	have, err := kernelObjects(ctx, kind, options)
	if err != nil {
		return nil, err
	}
	report, err := dump.Of(table, service, func(t *model.Table) ([]kernel.Object, error) { return kind.Render(t, options) }, have)
	if err != nil {
		return nil, err
	}
	report.Node, report.Mode, report.Lacks = agent.Status.Node, agent.Status.Mode, agent.Status.Lacks
	return report, nil
}

// Service compares what an agent has in force of a Service with its node's kernel: in a process
// of its own, `fairway dump`, which can enter another network namespace, or, of a node elsewhere,
// by its agent.
func Service(ctx context.Context, agent agentlink.Found, namespace, service string) (*dump.Report, error) {
	if !agent.IsLocal() {
		return agent.Objects(ctx, namespace+"/"+service)
	}
	socket := agent.Path
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("read the kernel: %w", err)
	}
	command := exec.CommandContext(ctx, self, "dump", "svc/"+service, "--namespace", namespace, "--agent-socket", socket, "--output", "json")
	var failed bytes.Buffer
	command.Stderr = &failed
	out, err := command.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1 says that something differs
		return nil, fmt.Errorf("read the kernel: %s", bytes.TrimSpace(bytes.TrimPrefix(failed.Bytes(), []byte("fairway: "))))
	}
	var report dump.Report
	if err := json.Unmarshal(out, &report); err != nil {
		return nil, fmt.Errorf("read the kernel: %w", err)
	}
	return &report, nil
}

// All lists the objects of all modes: nothing tells what they should be. why is added to an
// error that says that there are none.
func All(ctx context.Context, options kernel.Options, why string) ([]*dump.Report, error) {
	var list []*dump.Report
	for _, kind := range dataplane.Kinds() {
		have, err := kernelObjects(ctx, kind, options)
		if kind.LeftNothing(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(have) > 0 {
			report := dump.Read(have, "no agent answers on this machine")
			report.Mode = kind.Name
			list = append(list, report)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no agent answers on this machine%s; and no mode has anything in the kernel", why)
	}
	return list, nil
}

// kernelObjects reads what a mode has in the kernel, whichever process put it there.
func kernelObjects(ctx context.Context, kind dataplane.Kind, options kernel.Options) (objects []kernel.Object, err error) {
	plane, err := kind.New(options)
	if err != nil {
		return nil, fmt.Errorf("read %s mode's objects: %w", kind.Name, err)
	}
	defer func() { err = errors.Join(err, plane.Close()) }()
	reading, err := plane.Read(ctx, kernel.Query{Objects: true})
	if err != nil {
		return nil, fmt.Errorf("read %s mode's objects: %w", kind.Name, err)
	}
	return reading.Objects, nil
}

// EnterNetworkOf has this process go on in the network namespace of another: it
// begins again there, unless it is the same.
func EnterNetworkOf(pid int) error {
	theirs := fmt.Sprintf("/proc/%d/ns/net", pid)
	there, err := os.Readlink(theirs)
	if err != nil {
		return fmt.Errorf("find the agent's network namespace: %w", err)
	}
	if here, err := os.Readlink("/proc/self/ns/net"); err != nil || here == there {
		return err
	}
	ns, err := os.Open(theirs)
	if err != nil {
		return fmt.Errorf("find the agent's network namespace: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("begin again in the agent's network namespace: %w", err)
	}
	// execve takes the calling thread's namespace along, for all of the process.
	runtime.LockOSThread()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the agent's network namespace: %w", err)
	}
	return fmt.Errorf("begin again in the agent's network namespace: %w", syscall.Exec(self, os.Args, os.Environ()))
}
