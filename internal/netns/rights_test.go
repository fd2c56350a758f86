package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"
)

// fewRights is set in a process that may enter no namespace.
const fewRights = "FAIRWAY_TEST_FEW_RIGHTS"

// otherNamespace names a file that is another namespace.
const otherNamespace = "FAIRWAY_TEST_OTHER_NAMESPACE"

// TestDoWithoutRights: a process without CAP_SYS_ADMIN, such as an agent's in a pod, can do
// things where it is, again and again; and nowhere else.
func TestDoWithoutRights(t *testing.T) {
	if os.Getenv(fewRights) == "" {
		other := exec.Command("unshare", "--net", "sleep", "60")
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Process.Kill(); _ = other.Wait() }() // it has done its part
		there := fmt.Sprintf("/proc/%d/ns/net", other.Process.Pid)
		for late := range wait.Tries(10 * time.Second) {
			own, err := os.Readlink("/proc/self/ns/net")
			if its, itsErr := os.Readlink(there); err == nil && itsErr == nil && its != own {
				break
			}
			if late {
				t.Fatal("there is no other namespace")
			}
		}
		command := exec.Command("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", os.Args[0], "-test.run=^TestDoWithoutRights$")
		command.Env = append(os.Environ(), fewRights+"=1", otherNamespace+"="+there)
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	here, err := Current()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	for range 3 {
		done := false
		if err := here.Do(func() error { done = true; return nil }); err != nil || !done {
			t.Errorf("where the process is: done %v, %v", done, err)
		}
	}
	command := exec.Command("true")
	if err := here.Start(command); err != nil {
		t.Error(err)
	} else if err := command.Wait(); err != nil {
		t.Error(err)
	}
	other, err := OfPath(os.Getenv(otherNamespace))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Do(func() error { return nil }); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("in another namespace: %v", err)
	}
}
