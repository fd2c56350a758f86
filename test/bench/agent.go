package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab/topology"
)

// agentProcess is the agent under measurement.
type agentProcess struct {
	*process
	run   *run
	state string // its state directory
	began time.Time
	mode  mode
	spent time.Duration // processor time of those before it in its cgroup
	peak  func() (peak, error)
}

// nodeName is the node's at the API.
const nodeName = "node1"

func startAgent(ctx context.Context, r *run, m mode) (*agentProcess, error) {
	a := &agentProcess{run: r, mode: m, state: filepath.Join(r.options.Dir, "state-"+strings.ReplaceAll(m.name, " ", "-"))}
	return a, a.start(ctx)
}

func (a *agentProcess) start(ctx context.Context) error {
	if err := os.MkdirAll(a.state, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	before, err := newUsage(cgroupOf("agent"))
	if err != nil {
		return err
	}
	if a.spent, err = before.cpu(); err != nil {
		return err
	}
	if a.mode.proxy != nil {
		err = a.startProxy(ctx)
	} else {
		err = a.startOwn()
	}
	if err != nil {
		return err
	}
	a.peak = watchPeak(a.usage)
	return nil
}

func (a *agentProcess) startOwn() error {
	group, err := topology.FindCgroup(labName, nodeName)
	if err != nil {
		return err
	}
	args := append([]string{
		"agent", "--kubeconfig", a.run.api.kubeconfig, "--node-name", nodeName, "--state-dir", a.state,
		"--cluster-cidr", topology.DefaultOptions().Pods4.String(), "--cluster-cidr", endpointRange.String(), "--service-cidr", serviceCIDR,
		"--cgroup", group,
	}, a.mode.args...)
	a.began = time.Now()
	a.process, err = start(a.run.site.node.Host, "agent", a.run.options.Dir, exec.Command(a.program(), args...))
	return err
}

// program is the one whose agent is measured.
func (a *agentProcess) program() string { return cmp.Or(a.run.options.Agent, a.run.options.Fairway) }

// ready waits until the agent says that it has programmed everything, and
// returns when that was.
func (a *agentProcess) ready(ctx context.Context) (time.Time, error) {
	if a.mode.proxy != nil {
		return a.proxyProgrammed(ctx)
	}
	transport := &http.Transport{DialContext: a.run.site.node.DialContext}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	err := poll(ctx, startTimeout, 2*time.Millisecond, func() error {
		if err := a.alive(); err != nil {
			return permanent{err}
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10256/healthz", nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		if err := answer.Body.Close(); err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("health check says %s", answer.Status)
		}
		return nil
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("wait for the agent: %w", err)
	}
	return time.Now(), nil
}

// remove ends the agent and takes out of the node what it put there.
func (a *agentProcess) remove(ctx context.Context) error {
	_, err := a.highest()
	errs := []error{err, a.stop()}
	if a.mode.proxy != nil {
		errs = append(errs, a.cleanProxy(ctx))
	}
	cleanup, err := start(a.run.site.node.Host, "cleanup", a.run.options.Dir, exec.Command(a.program(), "cleanup", "--state-dir", a.state))
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	select {
	case <-cleanup.ended:
	case <-ctx.Done():
	}
	return errors.Join(append(errs, cleanup.stop())...)
}

// roomFor says why a mode can't be measured at a size on this machine: nil if
// it can. The userspace mode has an open file for each Service.
func roomFor(m mode, s size) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if m.name != "userspace" || uint64(s.services) < limit.Max-limit.Max/4 {
		return nil
	}
	return fmt.Errorf("a listener for each of %d Services, and a process may have %d files open here (ulimit -Hn)", s.services, limit.Max)
}

// started measures the start: until the agent says that it is done and Services
// all over the table answer.
func (p *subject) started(ctx context.Context) error {
	programmed, err := p.agent.ready(ctx)
	if err != nil {
		return err
	}
	const samples = 50
	list := p.api.world.services
	for i := range samples {
		svc := list[i*len(list)/samples]
		var err error
		p.site.workers.do(func() {
			var at netip.Addr
			if at, err = connect(svc.vip); err == nil && !endpointRange.Contains(at) {
				err = fmt.Errorf("%s is no endpoint", at)
			}
		})
		if err != nil {
			return fmt.Errorf("connect to Service %s, with the agent ready: %w", svc.name, err)
		}
	}
	spent, err := p.agent.usage.cpu()
	if err != nil {
		return err
	}
	top, err := p.agent.highest()
	if err != nil {
		return err
	}
	if p.stage.has("start") {
		p.record("peak", "%s", top)
		p.record("start", "%.2f s (CPU %.2f s)", programmed.Sub(p.agent.began).Seconds(), (spent - p.agent.spent).Seconds())
	}
	return nil
}

// highest is the most memory that it had so far. It isn't watched afterwards.
func (a *agentProcess) highest() (peak, error) {
	if a.peak == nil {
		return peak{}, nil
	}
	defer func() { a.peak = nil }()
	return a.peak()
}
