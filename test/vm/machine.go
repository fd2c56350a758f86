package vm

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Config says what is in a machine.
type Config struct {
	// Binary is the test binary; "" is the one that is running.
	Binary string
	// Files are further files of the host that the machine has under the same
	// paths; directories with all that's in them, programs with their libraries. The current directory's
	// testdata is always there.
	Files []string
	// Kernel is the Debian release whose cloud kernel it has; "" is that of this
	// machine.
	Kernel string
	// Network lets programs in it reach what listens on this machine's loopback,
	// as HostAddress.
	Network bool
}

// HostAddress is the host's in a machine with a network.
const HostAddress = "10.0.2.2"

// Command is a run of the machine's test binary.
type Command struct {
	Args    []string
	Env     []string  // added to what the machine has and FAIRWAY_... of this process
	Modules []string  // kernel modules to load before
	Output  io.Writer // gets what it writes, as it writes it; nil throws it away
	// Silence is how long it may write nothing until the machine is given up as
	// frozen; 0 is for ever.
	Silence time.Duration
}

// Machine is a running virtual machine. It runs several commands at a time.
type Machine struct {
	// Accel is how it runs, "kvm" or "tcg", with the reason for the latter.
	Accel string

	console *os.File // with the kernel's messages; it has no name any more
	lines   []*line
	free    chan *line
	pulse   *line // signs of life
	process *os.Process
	ended   chan struct{}
	frozen  atomic.Bool // if it was killed for that
}

// commands are how many the machine runs at a time.
const commands = 4

// Start boots a machine. It ends with this process, or by Close.
func Start(c Config) (*Machine, error) {
	if err := missingPrograms(exec.LookPath); err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	k, err := kernel(cache, c.Kernel)
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
	ways, reason, err := accelerators(os.Getenv(AccelEnv))
	if err != nil {
		return nil, err
	}
	return startAny(ways, reason, dir, k, initrd, c.Network)
}

// startAny boots in the first way that works.
func startAny(ways []accelerator, reason, dir string, k kernelFiles, initrd string, network bool) (*Machine, error) {
	var failed []error
	for _, way := range ways {
		m := &Machine{Accel: way.name, free: make(chan *line, commands), ended: make(chan struct{})}
		if reason != "" {
			m.Accel += ": " + reason
		}
		var err error
		if m.console, err = os.Create(filepath.Join(dir, "console-"+way.name)); err != nil {
			return nil, err
		}
		if err = m.boot(way, k, initrd, network); err == nil {
			return m, nil
		}
		err = errors.Join(fmt.Errorf("%s: %w", way.name, err), m.Close())
		failed, reason = append(failed, err), err.Error()
	}
	return nil, errors.Join(failed...)
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
		if info, err := os.Stat(f); err == nil && info.Mode().IsRegular() {
			if err := a.addProgram(f); err != nil { // with its libraries
				return err
			}
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
func (m *Machine) boot(way accelerator, k kernelFiles, initrd string, network bool) error {
	// Emulated timers are not checked: on a busy host no tick may come in the short
	// time in which the kernel expects some, and it gives up ("IO-APIC + timer doesn't
	// work").
	settings := fmt.Sprintf("console=ttyS0 quiet panic=-1 no_timer_check lines=%d", commands)
	var device []string
	if network {
		settings += " network=on"
		device = []string{"-netdev", "user,id=host", "-device", "virtio-net-pci,netdev=host,romfile="}
	}
	cmd := exec.Command("qemu-system-x86_64", slices.Concat(way.args, []string{
		"-machine", "q35", "-m", "4096",
		"-nodefaults", "-display", "none", "-no-reboot",
		"-serial", "file:" + m.console.Name(), "-device", "virtio-serial-pci",
		"-kernel", k.image, "-initrd", initrd, "-append", settings}, device)...)
	for n := range commands + 1 {
		l, err := newLine()
		if err != nil {
			return err
		}
		if n < commands {
			m.lines = append(m.lines, l)
		} else {
			m.pulse = l
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, l.qemu)
		cmd.Args = append(cmd.Args, "-chardev", fmt.Sprintf("socket,id=line%d,fd=%d", n, 3+n),
			"-device", fmt.Sprintf("virtserialport,chardev=line%d,nr=%d", n, 1+n))
	}
	var complaints tail
	cmd.Stderr = &complaints
	if err := m.start(cmd); err != nil {
		return err
	}
	tooLate := time.AfterFunc(way.timeout, m.kill)
	defer tooLate.Stop()
	for _, l := range m.lines {
		if err := errors.Join(l.inherited(), l.ready()); err != nil {
			return fmt.Errorf("the virtual machine ended while booting: %w; qemu: %s; console:\n%s", err, complaints.String(), m.kernelMessages())
		}
		m.free <- l
	}
	if err := m.pulse.inherited(); err != nil {
		return err
	}
	go m.watch(pulseTimeout)
	return nil
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
	m.process = cmd.Process
	return nil
}

// kill ends qemu; if it has ended already, all the better.
func (m *Machine) kill() { _ = m.process.Kill() }

// Run runs the test binary in the machine and returns its exit code. An error
// means that the machine broke down; it is ErrFrozen if it just stopped.
func (m *Machine) Run(c Command) (int, error) {
	l := <-m.free
	defer func() { m.free <- l }()
	here, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	var text strings.Builder
	for _, module := range c.Modules {
		fmt.Fprintf(&text, "modprobe %s; ", quote(module))
	}
	fmt.Fprintf(&text, "cd %s && exec env %s=1", quote(here), insideEnv)
	for _, setting := range append(ownSettings(), c.Env...) {
		text.WriteString(" " + quote(setting))
	}
	text.WriteString(" /test")
	for _, arg := range c.Args {
		text.WriteString(" " + quote(arg))
	}
	out := c.Output
	if out == nil {
		out = io.Discard
	}
	code, err := l.run(text.String(), out, c.Silence)
	if err != nil {
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = fmt.Errorf("%w: nothing written for %s; processes:\n%s", ErrFrozen, c.Silence, m.processes())
			m.giveUp()
		case m.frozen.Load():
			err = ErrFrozen
		}
		return code, fmt.Errorf("%w; console:\n%s", err, m.kernelMessages())
	}
	return code, nil
}

// Fetch reads a file of the machine's.
func (m *Machine) Fetch(path string) ([]byte, error) {
	l := <-m.free
	defer func() { m.free <- l }()
	var text strings.Builder
	code, err := l.run("base64 "+quote(path), &text, 0)
	if err == nil && code != 0 {
		err = errors.New(strings.TrimSpace(text.String()))
	}
	if err != nil {
		return nil, fmt.Errorf("fetch %s from the virtual machine: %w", path, err)
	}
	content, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(text.String(), "\n", ""))
	if err != nil {
		return nil, fmt.Errorf("fetch %s from the virtual machine: %w", path, err)
	}
	return content, nil
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
	if m.process != nil {
		m.kill()
		<-m.ended
	}
	errs := []error{m.console.Close()}
	for _, l := range append(m.lines, m.pulse) {
		if l != nil {
			errs = append(errs, l.close())
		}
	}
	return errors.Join(errs...)
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
