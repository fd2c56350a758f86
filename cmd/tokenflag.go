package cmd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/config"
)

// tokenCommands take --token.
var tokenCommands = []string{"join", "server", "up", "install"}

// hideToken starts the program anew without a token among its arguments, which every
// user of the machine can read for as long as it runs. It returns if there is none.
func hideToken(args []string) error {
	hidden, token, found := withoutToken(args)
	if !found {
		return nil
	}
	fmt.Fprintf(os.Stderr, "fairway: --%s: the token is taken out of the arguments now, but others on this machine could read it there, and shells and sudo keep it: give it by --%s FILE, or --%s -\n", config.TokenFlag, config.TokenFileFlag, config.TokenFileFlag)
	fd, err := unix.MemfdCreate(config.TokenFlag, 0)
	if err != nil {
		return fmt.Errorf("hide the token: %w", err)
	}
	if _, err := unix.Write(fd, []byte(token)); err != nil {
		return fmt.Errorf("hide the token: %w", err)
	}
	hidden = append(hidden, fmt.Sprintf("--%s=/proc/self/fd/%d", config.TokenFileFlag, fd))
	if err := unix.Exec("/proc/self/exe", hidden, os.Environ()); err != nil {
		return fmt.Errorf("hide the token: %w", err)
	}
	return nil
}

// withoutToken takes the token out of a command line, if it is one that may have one.
func withoutToken(args []string) (rest []string, token string, found bool) {
	if len(args) < 2 || !slices.Contains(tokenCommands, args[1]) || !strings.HasPrefix(filepath.Base(args[0]), "fairway") && !strings.HasSuffix(args[0], ".test") {
		return args, "", false
	}
	for i := 0; i < len(args); i++ {
		value, joined := strings.CutPrefix(args[i], "--"+config.TokenFlag+"=")
		switch {
		case args[i] == "--":
			return append(rest, args[i:]...), token, false
		case joined:
			token, found = value, true
		case args[i] == "--"+config.TokenFlag && i+1 < len(args):
			i++
			token, found = args[i], true
		default:
			rest = append(rest, args[i])
		}
	}
	return rest, token, found && token != ""
}
