package vm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config says what is in a machine.
type Config struct {
	// Binary is the test binary; "" is the one that is running.
	Binary string
	// Files are further files of the host that the machine has under the same
	// paths; directories with all that's in them. The current directory's
	// testdata is always there.
	Files []string
}

// Command is a run of the machine's test binary.
type Command struct {
	Args    []string
	Env     []string  // added to what the machine has and FAIRWAY_... of this process
	Modules []string  // kernel modules to load before
	Output  io.Writer // gets what it writes, as it writes it; nil throws it away
}

// Machine is a running virtual machine.
type Machine struct {
	mu      sync.Mutex // one command at a time
	console *os.File   // with the kernel's messages; it has no name any more
	stdin   io.Writer
	stdout  *bufio.Reader
	kill    func()
	ended   chan struct{}
}

// bootPatience is how long booting may take under software emulation on a busy
// machine; it takes four seconds otherwise.
const bootPatience = 3 * time.Minute

// Start boots a machine. It ends with this process, or by Close.
func Start(c Config) (*Machine, error) {
	if err := missingPrograms(exec.LookPath); err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	k, err := kernel(cache)
	if err != nil {
		return nil, err
	}
	baseFile, err := base(cache, k)
	if err != nil {
		return nil, fmt.Errorf("make the machine's file system: %w", err)
	}
	dir, err := os.MkdirTemp("", "fairway-vm-")
	if err != nil {
		return nil, err
	}
	// Once it has booted, the machine needs no file of ours.
	defer os.RemoveAll(dir)
	initrd := filepath.Join(dir, "initrd")
	if err := writeInitrd(initrd, baseFile, c); err != nil {
		return nil, fmt.Errorf("make the machine's file system: %w", err)
	}
	m := &Machine{ended: make(chan struct{})}
	if m.console, err = os.Create(filepath.Join(dir, "console")); err != nil {
		return nil, err
	}
	if err := m.boot(k, initrd); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// writeInitrd puts the base and the test's own files behind each other.
func writeInitrd(file, baseFile string, c Config) error {
	binary := c.Binary
	if binary == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		binary = self
	}
	a := newArchive()
	a.put("/test", entry{mode: 0o755, host: binary})
	for _, library := range libraries(binary) {
		if err := a.addFile(library); err != nil {
			return err
		}
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	a.put(here, entry{mode: os.ModeDir | 0o755})
	files := c.Files
	if testdata := filepath.Join(here, "testdata"); exists(testdata) {
		files = append(files, testdata)
	}
	for _, f := range files {
		if err := a.addTree(f, f, func(string) bool { return true }); err != nil {
			return err
		}
	}
	return writeFile(file, func(w io.Writer) error {
		b, err := os.Open(baseFile)
		if err != nil {
			return err
		}
		defer b.Close()
		if _, err := io.Copy(w, b); err != nil {
			return err
		}
		return a.writeTo(w)
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// boot starts qemu and waits until the machine takes commands.
func (m *Machine) boot(k kernelFiles, initrd string) error {
	cmd := exec.Command("qemu-system-x86_64",
		"-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2048",
		"-nodefaults", "-display", "none", "-no-reboot",
		"-serial", "file:"+m.console.Name(), "-serial", "stdio",
		"-kernel", k.image, "-initrd", initrd, "-append", "console=ttyS0 quiet panic=-1")
	var complaints tail
	cmd.Stderr = &complaints
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.start(cmd); err != nil {
		return err
	}
	m.stdin, m.stdout = stdin, bufio.NewReader(stdout)
	tooLate := time.AfterFunc(bootPatience, m.kill)
	defer tooLate.Stop()
	for {
		line, err := m.stdout.ReadString('\n')
		if err != nil {
			return fmt.Errorf("the virtual machine ended while booting: %w; qemu: %s; console:\n%s", err, complaints.String(), m.kernelMessages())
		}
		if strings.TrimSpace(line) == "::ready::" {
			return nil
		}
	}
}

// start starts qemu so that it ends when this process does: by a signal on the
// death of the thread that started it, which therefore stays with it.
func (m *Machine) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			// However qemu ends, readers of its output learn of it.
			_, _ = cmd.Process.Wait()
		}
		close(m.ended)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start qemu: %w", err)
	}
	m.kill = func() { _ = cmd.Process.Kill() } // if it has ended already, all the better
	return nil
}

// Run runs the test binary in the machine and returns its exit code. An error
// means that the machine broke down.
func (m *Machine) Run(c Command) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	here, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	var line strings.Builder
	for _, module := range c.Modules {
		fmt.Fprintf(&line, "modprobe %s; ", quote(module))
	}
	fmt.Fprintf(&line, "cd %s && exec env %s=1", quote(here), insideEnv)
	for _, setting := range append(ownSettings(), c.Env...) {
		line.WriteString(" " + quote(setting))
	}
	line.WriteString(" /test")
	for _, arg := range c.Args {
		line.WriteString(" " + quote(arg))
	}
	if _, err := io.WriteString(m.stdin, line.String()+"\n"); err != nil {
		return 0, fmt.Errorf("send the command: %w", err)
	}
	return m.answer(c.Output)
}

// ownSettings are the environment variables that are about tests of this
// project.
func ownSettings() []string {
	var settings []string
	for _, s := range os.Environ() {
		if strings.HasPrefix(s, "FAIRWAY_") {
			settings = append(settings, s)
		}
	}
	return settings
}

// answer passes output on until the line with the exit code.
func (m *Machine) answer(out io.Writer) (int, error) {
	if out == nil {
		out = io.Discard
	}
	for {
		line, err := m.stdout.ReadString('\n')
		if err != nil {
			return 0, fmt.Errorf("the virtual machine ended: %w; console:\n%s", err, m.kernelMessages())
		}
		if rest, ok := strings.CutPrefix(line, "::exit "); ok {
			return strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), "::"))
		}
		if _, err := io.WriteString(out, line); err != nil {
			return 0, fmt.Errorf("pass on the output: %w", err)
		}
	}
}

// kernelMessages is the end of the console.
func (m *Machine) kernelMessages() string {
	text, err := io.ReadAll(io.NewSectionReader(m.console, 0, 1<<20))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-8192):])
}

// Close ends the machine.
func (m *Machine) Close() error {
	if m.kill != nil {
		m.kill()
		<-m.ended
	}
	return m.console.Close()
}

func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text string
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text += string(b)
	t.text = t.text[max(0, len(t.text)-4096):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}
