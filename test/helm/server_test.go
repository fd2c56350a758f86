package helm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager" // whose module has the definitions
)

// program is the fairway binary.
var program string

// serve starts a server with a directory of its own, and returns the kubeconfig.
func serve(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var log bytes.Buffer
	server := exec.Command(program, "server", "--data-dir", dir, "--secure-port", "0", "--snapshot-interval", "0")
	server.Stdout, server.Stderr = &log, &log
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	t.Cleanup(func() {
		if err := server.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("end the server: %v", err)
		}
		if err := <-ended; err != nil {
			t.Errorf("the server: %v\n%s", err, log.String())
		}
	})
	kubeconfig := filepath.Join(dir, "admin.kubeconfig")
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if _, err := os.Stat(kubeconfig); err == nil {
			return kubeconfig
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the server has ended: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the server doesn't become ready")
		}
	}
}

func try(kubeconfig string, args ...string) (string, error) {
	out, err := exec.Command(program, append([]string{"kubectl", "--kubeconfig", kubeconfig}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func kubectl(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	out, err := try(kubeconfig, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// moduleDir is where a module of go.mod has its files.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("find module %s: %v", module, err)
	}
	return strings.TrimSpace(string(out))
}
