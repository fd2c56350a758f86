package dns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// ownNetwork is set in the process whose network namespace is the tests' own.
const ownNetwork = "FAIRWAY_TEST_OWN_NETWORK"

// TestMain runs the tests in a network namespace of their own, so that nobody else
// takes a port that a server is about to listen at.
func TestMain(m *testing.M) {
	if os.Getenv(ownNetwork) != "" {
		if err := raiseLoopback(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	command := exec.Command(os.Args[0], os.Args[1:]...)
	command.Env = append(os.Environ(), ownNetwork+"=1")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	err := command.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "the tests of dns need root:", err)
		os.Exit(1)
	}
}

func raiseLoopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}
