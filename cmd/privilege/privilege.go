// Package privilege refuses at once what a command may not do without the rights of root.
package privilege

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// Require has a command refuse at once to run without the rights of root,
// unless it only shows something.
func Require(root *cobra.Command) {
	for _, c := range root.Commands() {
		switch c.Name() {
		case "up", "join", "leave", "cleanup", "agent":
			c.PreRunE = func(c *cobra.Command, _ []string) error {
				for _, harmless := range []string{"version", "write-config-to"} {
					if f := c.Flags().Lookup(harmless); f != nil && f.Changed {
						return nil
					}
				}
				return Check(c)
			}
		}
	}
}

// Check is an error unless this process may change the kernel's network.
func Check(c *cobra.Command) error {
	if os.Geteuid() == 0 {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_NET_ADMIN) != 0 {
		return nil
	}
	return fmt.Errorf("%s programs the kernel, which takes root (or CAP_NET_ADMIN): try sudo %s", c.CommandPath(), c.CommandPath())
}
