package userspace

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/model"
)

const (
	insideEnv = "FAIRWAY_USERSPACE_TEST_INSIDE" // set in the tests' own network namespace
	agentEnv  = "FAIRWAY_USERSPACE_TEST_AGENT"  // the state directory of a process that plays the agent
)

// TestMain runs all tests in a process that lives wholly in a network namespace
// of its own, as do the relays that it starts.
func TestMain(m *testing.M) {
	Main()
	switch {
	case os.Getenv(agentEnv) != "":
		fail(playAgent(os.Getenv(agentEnv)))
	case os.Getenv(insideEnv) != "":
		os.Exit(m.Run())
	default:
		fail(runInside())
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runInside() error {
	ns, err := netns.Anonymous()
	if err != nil {
		return fmt.Errorf("these tests need root, for a network namespace: %w", err)
	}
	handle, err := ns.Netlink()
	if err != nil {
		return err
	}
	lo, err := handle.LinkByName("lo")
	if err == nil {
		err = handle.LinkSetUp(lo)
	}
	handle.Close()
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := ns.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// playAgent applies the table on standard input, says so, and waits to be killed.
func playAgent(stateDir string) error {
	var d model.Delta
	if err := json.NewDecoder(os.Stdin).Decode(&d); err != nil {
		return err
	}
	p, err := New(kernel.Options{StateDir: stateDir})
	if err != nil {
		return err
	}
	if _, err := p.Apply(context.Background(), d.Apply(model.NewTable()), kernel.VerifyNothing); err != nil {
		return err
	}
	fmt.Println("applied")
	time.Sleep(time.Hour) // until it is killed
	return nil
}
