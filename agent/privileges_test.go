package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/servicetables"
)

// humbleMode is set in a process that programs a mode with CAP_NET_ADMIN alone.
const humbleMode = "FAIRWAY_TEST_HUMBLE_MODE"

// nobody is a user that owns nothing.
const nobody = 65534

// TestModesWithNetAdminAlone: these need no more once the node is prepared, and
// no place to write to.
func TestModesWithNetAdminAlone(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) {
			command := exec.Command("/proc/self/exe")
			command.Env = append(os.Environ(), humbleMode+"="+mode)
			command.Dir = "/"
			command.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWNET,
				Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
				AmbientCaps: []uintptr{unix.CAP_NET_ADMIN},
			}
			if out, err := command.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// beHumble programs, compares, changes and removes a mode.
func beHumble(mode string) error {
	if os.Getuid() != nobody {
		return fmt.Errorf("user %d", os.Getuid())
	}
	kind, err := dataplane.Find(mode)
	if err != nil {
		return err
	}
	plane, err := kind.New(kernel.Options{StateDir: "/nowhere"})
	if err != nil {
		return err
	}
	ctx := context.Background()
	table := servicetables.Services(1, 2)
	e := table.Edit()
	e.SetSettings(&model.Settings{NodeAddrs: []netip.Addr{netip.MustParseAddr(firstAddress)}})
	table = e.Table()
	apply := func(t *model.Table, verify kernel.Verification) error {
		result, err := plane.Apply(ctx, t, verify)
		return errors.Join(err, result.Err())
	}
	for _, step := range []func() error{
		func() error { return apply(table, kernel.VerifyNothing) },
		func() error { return apply(table, kernel.VerifyAll) },
		func() error { return apply(servicetables.Services(2, 3), kernel.VerifyNothing) },
		func() error { return plane.Remove(ctx, kernel.EndConnections) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
