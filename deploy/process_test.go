package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// process is a running container.
type process struct {
	t       *testing.T
	command *exec.Cmd
	log     *logBuffer
	ended   chan struct{}
	err     error
	end     func() error // kills it
}

// run starts a container of the pod as the manifest says, with changes to the
// ConfigMap and to the environment.
func (h *host) run(pod *corev1.PodSpec, c *corev1.Container, environ ...string) *process {
	h.t.Helper()
	spec := container{Args: slices.Clone(c.Args), Root: h.t.TempDir(), Files: map[string]string{}, Mounts: map[string]string{}}
	account := "/run/secrets/kubernetes.io/serviceaccount/"
	spec.Files[account+"token"], spec.Files[account+"ca.crt"], spec.Files[account+"namespace"] = apiToken, string(h.ca), "kube-system"
	for _, m := range h.mounts(pod, c) {
		if m.readOnly && m.from == m.at {
			spec.Visible = append(spec.Visible, m.at)
		} else {
			spec.Mounts[m.at] = m.from
		}
	}
	for i, a := range spec.Args {
		spec.Args[i] = strings.ReplaceAll(a, "$(NODE_NAME)", nodeName)
	}
	spec.Privileged = privileged(c)
	if security := c.SecurityContext; security.Capabilities != nil {
		for _, name := range security.Capabilities.Add {
			spec.Capabilities = append(spec.Capabilities, string(name))
		}
	}
	text, err := json.Marshal(spec)
	if err != nil {
		h.t.Fatal(err)
	}
	p := &process{t: h.t, command: exec.Command(os.Args[0]), log: &logBuffer{}, ended: make(chan struct{})}
	p.command.Env = append(os.Environ(), append(environ, containerVariable+"="+string(text), "NODE_NAME="+nodeName)...)
	p.command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: 0}
	p.end = func() error { return p.command.Process.Kill() }
	h.start(p)
	return p
}

// start starts a container's process; it ends with the test.
func (h *host) start(p *process) {
	h.t.Helper()
	p.command.Stdout, p.command.Stderr = p.log, p.log
	if err := h.ns.Start(p.command); err != nil {
		h.t.Fatal(err)
	}
	go func() { p.err = p.command.Wait(); close(p.ended) }()
	h.t.Cleanup(p.kill)
}

// mount is what a container sees of its machine or of the API's objects.
type mount struct {
	from, at string
	readOnly bool
}

// mounts are those of the pod's volumes.
func (h *host) mounts(pod *corev1.PodSpec, c *corev1.Container) (mounts []mount) {
	for _, m := range c.VolumeMounts {
		volume := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })]
		switch {
		case volume.ConfigMap != nil:
			mounts = append(mounts, mount{filepath.Join(h.dir, "config"), m.MountPath, m.ReadOnly})
		case m.ReadOnly && !exists(volume.HostPath.Path):
			// A runtime makes it, empty, on machines that have no kernel of their own.
		case m.ReadOnly:
			mounts = append(mounts, mount{volume.HostPath.Path, m.MountPath, true})
		default: // the machine's own, of which each test has one
			mounts = append(mounts, mount{filepath.Join(h.dir, filepath.Base(volume.HostPath.Path)), m.MountPath, false})
		}
	}
	return mounts
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func privileged(c *corev1.Container) bool {
	return c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

// kill ends the container as SIGKILL does.
func (p *process) kill() {
	select {
	case <-p.ended:
		return
	default:
	}
	if err := p.end(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
	<-p.ended
}

// wait waits for a container that ends by itself.
func (p *process) wait() {
	p.t.Helper()
	select {
	case <-p.ended:
		if p.err != nil {
			p.t.Fatalf("container: %v\n%s", p.err, p.log)
		}
	case <-time.After(60 * time.Second):
		p.t.Fatalf("the container goes on\n%s", p.log)
	}
}

// logBuffer is a buffer for several goroutines.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
