package kubeproxy

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/agent"
)

// fewerCPUs is set in a process that may run on one CPU: how many connections
// the machine is to track all the same.
const fewerCPUs = "FAIRWAY_TEST_FEWER_CPUS"

// TestMaxPerCoreIsOfTheMachine: a static CPU policy, which pins the agent,
// doesn't make the machine's table of connections smaller.
func TestMaxPerCoreIsOfTheMachine(t *testing.T) {
	c := &Configuration{}
	Default(c)
	c.Conntrack.MaxPerCore, c.Conntrack.Min = ptr.To[int32](1000), ptr.To[int32](0)
	config, err := Agent(c, agent.Config{})
	if err != nil {
		t.Fatal(err)
	}
	got := strconv.Itoa(config.Conntrack.Max)
	if want := os.Getenv(fewerCPUs); want != "" {
		if runtime.NumCPU() != 1 || got != want {
			t.Errorf("%s connections on %d of the CPUs, want %s", got, runtime.NumCPU(), want)
		}
		return
	}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	first := 0
	for !allowed.IsSet(first) {
		first++
	}
	child := exec.Command("taskset", "--cpu-list", strconv.Itoa(first), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), fewerCPUs+"="+got)
	if output, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}
