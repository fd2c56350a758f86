package nftables

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/fairway-net/fairway/internal/kernel"
)

// TestMissingPrivilege: without CAP_NET_ADMIN, New says so.
func TestMissingPrivilege(t *testing.T) {
	if os.Getenv("FAIRWAY_WITHOUT_PRIVILEGE") != "" {
		_, err := New(kernel.Options{})
		var missing *kernel.MissingError
		if !errors.As(err, &missing) || missing.What != "CAP_NET_ADMIN" {
			t.Errorf("got %v", err)
		}
		return
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(executable, "-test.run=^TestMissingPrivilege$", "-test.v")
	child.Dir = "/"
	child.Env = append(os.Environ(), "FAIRWAY_WITHOUT_PRIVILEGE=1")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	// The binary may lie where others can't go: it is opened here.
	file, err := os.Open(executable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	child.ExtraFiles = []*os.File{file}
	child.Path = "/proc/self/fd/3"
	out, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestMissingPrivilege") {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}
