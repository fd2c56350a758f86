package install

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strings"
)

// serverUser is whom the server runs as: it needs no rights but its data.
const serverUser = "fairway"

// systemctl is how to reach systemd; nil where none runs.
func (o *Options) systemctl() func(args ...string) error {
	if o.Systemctl != nil {
		return o.Systemctl
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil || o.Root != "" {
		return nil
	}
	return Systemctl
}

// Systemctl runs systemctl; the error holds what it printed.
func Systemctl(args ...string) error { return run("systemctl", args...) }

func run(program string, args ...string) error {
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// addUser makes the server's user, unless there is one.
func (o *Options) addUser(made *record) error {
	if o.Root != "" {
		return nil
	}
	_, err := user.Lookup(serverUser)
	if err == nil {
		return nil
	}
	if unknown := user.UnknownUserError(""); !errors.As(err, &unknown) {
		return fmt.Errorf("look for user: %w", err)
	}
	if err := run("useradd", "--system", "--user-group", "--no-create-home", "--home-dir", dataFolder, "--shell", "/usr/sbin/nologin", serverUser); err != nil {
		return fmt.Errorf("make user: %w", err)
	}
	made.User = serverUser
	return nil
}
