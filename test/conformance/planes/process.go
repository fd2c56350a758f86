package planes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/model"
)

// The environment of the process in which a plane lives.
const (
	// KindEnv names the plane and tells the test binary to be that process.
	KindEnv = "FAIRWAY_CONFORMANCE_PLANE"
	// StateDirEnv is the plane's state directory.
	StateDirEnv = "FAIRWAY_CONFORMANCE_STATE"
	// VariantEnv is the iptables variant that the plane uses; the one found if
	// it is empty.
	VariantEnv = "FAIRWAY_CONFORMANCE_IPTABLES"
	// XDPEnv says whether the plane may forward packets in drivers (kernel.XDPMode): off if
	// it is empty.
	XDPEnv = "FAIRWAY_CONFORMANCE_XDP"
	// CgroupEnv is the node's cgroup; the plane looks for one itself if it is empty.
	CgroupEnv = "FAIRWAY_CONFORMANCE_CGROUP"
	// OlderEnv is the test binary of an earlier version, for TestUpgrade; without
	// it, that upgrades this one to itself.
	OlderEnv = "FAIRWAY_CONFORMANCE_OLDER"
)

// MissingError says that the kernel at hand can't run a plane.
type MissingError struct{ Text string }

func (e *MissingError) Error() string { return e.Text }

// Process is a running plane.
type Process struct {
	Unsupported []kernel.Unsupported

	cmd      *exec.Cmd
	requests *json.Encoder
	stdin    io.Closer
	answers  *json.Decoder
	log      *tail
	last     *model.Table // the table applied last; nil if none
}

// StartProcess starts this test binary anew as a plane's process with the given
// variant of iptables, in the node's namespace and, unless cgroup is "", in the
// cgroup of that directory. The kind is a plane's name, or, as "iptables/legacy",
// says which variant itself, or, as "nftables@older", that it is of OlderEnv.
func StartProcess(kind, stateDir string, variant iptables.Variant, ns *netns.NS, cgroup string) (*Process, error) {
	program := "/proc/self/exe"
	kind, older := strings.CutSuffix(kind, "@older")
	if older {
		program = cmp.Or(os.Getenv(OlderEnv), program)
	}
	p := &Process{cmd: exec.Command(program), log: &tail{}}
	plane, own, _ := strings.Cut(kind, "/")
	p.cmd.Env = append(os.Environ(), KindEnv+"="+plane, StateDirEnv+"="+stateDir, VariantEnv+"="+cmp.Or(own, string(variant)), CgroupEnv+"="+cgroup)
	p.cmd.Stderr = p.log
	if cgroup != "" {
		dir, err := os.Open(cgroup)
		if err != nil {
			return nil, fmt.Errorf("start plane %s: %w", kind, err)
		}
		defer dir.Close()
		p.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start plane %s: %w", kind, err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start plane %s: %w", kind, err)
	}
	p.stdin, p.requests, p.answers = stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)
	if err := ns.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("start plane %s: %w", kind, err)
	}
	hello, err := p.receive()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start plane %s: %w", kind, err), p.Kill())
	}
	p.Unsupported = hello.Unsupported
	return p, nil
}

func (p *Process) receive() (reply, error) {
	var answer reply
	if err := p.answers.Decode(&answer); err != nil {
		return answer, fmt.Errorf("the plane's process ended: %w; it said:\n%s", err, p.log)
	}
	if answer.Missing {
		return answer, &MissingError{answer.Err}
	}
	if answer.Err != "" {
		return answer, errors.New(answer.Err)
	}
	return answer, nil
}

func (p *Process) ask(r request) (reply, error) {
	if err := p.requests.Encode(r); err != nil {
		return reply{}, fmt.Errorf("%s: %w; the plane's process said:\n%s", r.Op, err, p.log)
	}
	return p.receive()
}

// Apply has the plane apply a table.
func (p *Process) Apply(table *model.Table, verify bool) error {
	_, err := p.ask(request{Op: "apply", Change: table.Delta(p.last), Verify: verify})
	p.last = table
	return err
}

// Compare tells how what is in the kernel differs from what the plane's
// rendering says of the last table; "" means that it doesn't.
func (p *Process) Compare() (string, error) {
	answer, err := p.ask(request{Op: "compare"})
	return answer.Text, err
}

// Dump lists what is in the kernel.
func (p *Process) Dump() (string, error) {
	answer, err := p.ask(request{Op: "dump"})
	return answer.Text, err
}

// Remove has the plane remove everything of its own.
func (p *Process) Remove() error {
	_, err := p.ask(request{Op: "remove"})
	p.last = nil
	return err
}

// Retire has the plane give up to another, which is in force.
func (p *Process) Retire() error {
	_, err := p.ask(request{Op: "retire"})
	p.last = nil
	return err
}

// Drifted tells how often the plane has said, since last asked, that somebody
// else changed its objects.
func (p *Process) Drifted() (int, error) {
	answer, err := p.ask(request{Op: "drifted"})
	return answer.Drifts, err
}

// Kill ends the process as kill -9 does.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the plane's process: %w", err)
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("wait for the plane's process: %w", err)
	}
	return nil
}

// Log is the end of what the process wrote to its standard error.
func (p *Process) Log() string { return p.log.String() }

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text string
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text += string(b)
	if over := len(t.text) - 1<<14; over > 0 {
		t.text = t.text[over:]
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.text)
}
