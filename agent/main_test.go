package agent

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

// TestMain runs the tests in a network namespace of their own: an agent watches
// its machine's addresses and opens kube-proxy's ports.
func TestMain(m *testing.M) {
	if mode := os.Getenv(humbleMode); mode != "" {
		if err := beHumble(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(ownNetwork) != "" {
		if err := prepareNetwork(); err != nil {
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
		fmt.Fprintln(os.Stderr, "the agent's tests need root:", err)
		os.Exit(1)
	}
}

// The addresses of the machine that agents of tests run on.
const (
	firstAddress  = "192.0.2.10"
	secondAddress = "192.0.2.11"
)

// prepareNetwork makes the machine: it has two addresses beside loopback.
func prepareNetwork() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, address := range []string{firstAddress + "/32", secondAddress + "/32"} {
		a, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(lo)
}
