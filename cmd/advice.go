package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/internal/kernel"
)

// advise adds to the error that ends a command what its user may do about it,
// as far as the cause tells.
func advise(c *cobra.Command, err error) error {
	if said, names, ok := strings.Cut(err.Error(), "\n\nDid you mean this?\n"); ok { // cobra's
		return fmt.Errorf("%s: did you mean %s?", said, strings.Join(strings.Fields(names), " or "))
	}
	var listen *net.OpError
	var missing *kernel.MissingError
	var request *url.Error
	switch {
	case errors.As(err, &listen) && listen.Op == "listen" && errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: %s", err, adviseOnPort(c, listen.Addr))
	case kernel.IsNotPermitted(err) || errors.Is(err, fs.ErrPermission):
		if os.Geteuid() != 0 && !strings.Contains(err.Error(), "sudo") {
			return fmt.Errorf("%w: try sudo", err)
		}
	case errors.As(err, &missing):
		if mode := c.Flags().Lookup("mode"); mode != nil && mode.Changed {
			return fmt.Errorf("%w: %s", err, adviseOnMode(missing.What))
		}
	case errors.As(err, &request) && errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: is the server running?%s", err, otherKubeconfig(c))
	}
	return err
}

func otherKubeconfig(c *cobra.Command) string {
	if c.Flag("kubeconfig") == nil {
		return ""
	}
	return " --kubeconfig chooses another"
}

// adviseOnPort names the program that has an address, and the flag that it comes from.
func adviseOnPort(c *cobra.Command, addr net.Addr) string {
	advice := "another program has it"
	port := 0
	switch a := addr.(type) {
	case *net.TCPAddr:
		port = a.Port
		if owner := portOwner("tcp", a.AddrPort()); owner != "" {
			advice = owner + " has it"
		}
	case *net.UDPAddr:
		port = a.Port
		if owner := portOwner("udp", a.AddrPort()); owner != "" {
			advice = owner + " has it"
		}
	}
	advice += ": stop that"
	if flags := flagsWithPort(c, port); len(flags) > 0 {
		advice += ", or give another " + strings.Join(flags, " or ")
	}
	return advice
}

// flagsWithPort are the flags of a command whose value is, or ends in, a port.
func flagsWithPort(c *cobra.Command, port int) []string {
	var names []string
	number := strconv.Itoa(port)
	c.Flags().VisitAll(func(f *pflag.Flag) {
		for value := range strings.SplitSeq(strings.Trim(f.Value.String(), "[]"), ",") {
			isPort := value == number && strings.Contains(f.Name, "port")
			if !f.Hidden && (isPort || strings.HasSuffix(value, ":"+number)) {
				names = append(names, "--"+f.Name)
				return
			}
		}
	})
	return names
}

var moduleName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)+`)

// adviseOnMode is what to do where a mode lacks something of the kernel.
func adviseOnMode(lacks string) string {
	if module := moduleName.FindString(lacks); module != "" {
		return "try modprobe " + module + ", or --mode auto"
	}
	return "--mode auto takes one that this machine has"
}
