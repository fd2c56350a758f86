package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/internal/tcfilter"
	"github.com/fairway-net/fairway/lab/topology"
)

// readyFD is where a supervisor in the background says how its start went: "ok",
// or an error's text.
const readyFD = 3

// Up starts a lab in the background and returns when it is up.
func Up(ctx context.Context, config Config) error {
	if err := errors.Join(config.Validate(), checkPrivileges()); err != nil {
		return err
	}
	if config.Kubernetes != "" { // the supervisor works elsewhere
		path, err := filepath.Abs(config.Kubernetes)
		if err != nil {
			return fmt.Errorf("kubernetes: %w", err)
		}
		config.Kubernetes = path
	}
	if err := refuseSecond(config.Name); err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the own executable: %w", err)
	}
	if err := makeDir(Dir(config.Name)); err != nil {
		return fmt.Errorf("create state directory: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(Dir(config.Name), "supervisor.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("create log: %w", err)
	}
	defer log.Close()
	result, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("create pipe: %w", err)
	}
	defer result.Close()
	cmd := exec.Command(executable, config.args()...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/"
	if err := errors.Join(cmd.Start(), theirs.Close()); err != nil {
		return fmt.Errorf("start supervisor: %w", err)
	}
	return waitForSupervisor(ctx, config.Name, cmd, result)
}

// waitForSupervisor waits for what the supervisor says; if the context ends
// before, it ends the supervisor, which removes the lab.
func waitForSupervisor(ctx context.Context, name string, cmd *exec.Cmd, result io.Reader) error {
	said := make(chan string, 1)
	go func() {
		text, err := io.ReadAll(result)
		if err != nil {
			text = []byte(err.Error())
		}
		said <- string(text)
	}()
	select {
	case text := <-said:
		if text == "ok" {
			return cmd.Process.Release()
		}
		waitErr := cmd.Wait()
		if text != "" {
			return errors.New(text)
		}
		last := lastLine(filepath.Join(Dir(name), "supervisor.log"))
		return errors.Join(fmt.Errorf("the supervisor ended (%v): %s", endOf(waitErr), last), Down(name))
	case <-ctx.Done():
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return fmt.Errorf("stop the supervisor: %w", err)
		}
		<-said
		return errors.Join(context.Cause(ctx), waitFor(cmd))
	}
}

func waitFor(cmd *exec.Cmd) error {
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("wait for the supervisor: %w", err)
	}
	return nil
}

// ClientRouteFlag is the flag of Config.ClientSeesClusterIPs.
const ClientRouteFlag = "client-sees-cluster-ips"

// args is the command line of a supervisor in the background.
func (c Config) args() []string {
	args := []string{
		"lab", "up", "--background-supervisor", "--name", c.Name, "--nodes", strconv.Itoa(c.Nodes),
		"--mode", c.Mode, "--service-cidr", strings.Join(texts(c.ServiceCIDRs), ","),
	}
	if c.Kubernetes != "" {
		args = append(args, "--kubernetes", c.Kubernetes)
	}
	for _, i := range c.Images {
		args = append(args, "--image", i)
	}
	if c.Gateway {
		args = append(args, "--gateway", "--gateway-engine", c.GatewayEngine)
	}
	if c.ClientSeesClusterIPs {
		args = append(args, "--"+ClientRouteFlag)
	}
	for _, r := range c.LoadBalancerRanges {
		args = append(args, "--load-balancer-range", r)
	}
	if c.Router != "" {
		args = append(args, "--router", c.Router)
	}
	for _, a := range c.AgentArgs {
		args = append(args, "--agent-arg="+a)
	}
	return args
}

// RunBackground is Run in the process that Up started.
func RunBackground(ctx context.Context, config Config) error {
	result := os.NewFile(readyFD, "result")
	if result == nil {
		return errors.New("file descriptor 3: not open; this is for `fairway lab up` itself")
	}
	syscall.CloseOnExec(readyFD)
	said := false
	say := func(text string) error {
		said = true
		_, err := io.WriteString(result, text)
		return errors.Join(err, result.Close())
	}
	err := Run(ctx, config, func() error { return say("ok") })
	if err != nil && !said {
		return errors.Join(err, say(err.Error()))
	}
	return err
}

// refuseSecond says why a lab can't be made if there is one of that name.
func refuseSecond(name string) error {
	s, err := Load(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && s.Supervisor.alive() {
		return fmt.Errorf("lab %q is up already", name)
	}
	left, existsErr := topology.Exists(name)
	if existsErr != nil {
		return existsErr
	}
	if err == nil || left {
		return fmt.Errorf("something is left of an earlier lab %q: remove it with `fairway lab down --name %s`", name, name)
	}
	return nil
}

// Down removes a lab, whatever state it is in: it asks the supervisor to do it,
// and then removes what is left. A lab that isn't there is an error.
func Down(name string) error {
	if err := checkPrivileges(); err != nil {
		return err
	}
	s, err := Load(name)
	left, existsErr := topology.Exists(name)
	switch {
	case existsErr != nil:
		return existsErr
	case errors.Is(err, fs.ErrNotExist) && left: // it died before it wrote any
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !left:
		return err
	case err != nil && !left:
		return err
	case err == nil:
		if err := s.Supervisor.signal(syscall.SIGTERM); err != nil {
			return err
		}
		for deadline := time.Now().Add(10 * time.Second); s.Supervisor.alive() && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		if err := s.Supervisor.signal(syscall.SIGKILL); err != nil {
			return err
		}
	}
	// An ebpf mode keeps its maps where no namespace takes them along, and so do announcers
	// their programs.
	return errors.Join(topology.Remove(name), pins.RemoveDead(), tcfilter.RemoveDead(), removeState(name))
}

// removeState removes the state directory, and the directory of all labs'
// after the last.
func removeState(name string) error {
	if err := os.RemoveAll(Dir(name)); err != nil {
		return fmt.Errorf("remove state: %w", err)
	}
	for _, dir := range []string{stateRoot, filepath.Dir(stateRoot)} {
		err := os.Remove(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return fmt.Errorf("remove state: %w", err)
		}
	}
	return nil
}
