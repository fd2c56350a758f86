// Package install installs this program on a machine and uninstalls it: binary,
// systemd unit, manual pages, completion, links and a user. It records what it
// made. Uninstall removes that and nothing else.
//
// Files: install.go (what is made, in which order), files.go (files and links,
// and the record of them), system.go (systemd and the user), args.go (flags as
// arguments of a unit).
package install

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairway-net/fairway/deploy"
)

// Roles are what a machine can be installed as.
func Roles() []string { return []string{"server", "agent", "up", gatewayRole} }

// gatewayRole is a role, and may be beside another one.
const gatewayRole = "gateway"

// Options say what to install. The zero value of each field but Role, Program and
// the two functions is a default.
type Options struct {
	Role    string
	Program string   // the file to install, commonly this process's own
	Args    []string // options of the role; nil leaves those of an earlier installation
	// Gateway has the machine serve Gateways and Ingresses beside its role, with these
	// options; nil leaves that as it is.
	Gateway []string
	// Credential, if not "", is a kubeconfig for what serves Gateways, which is kept
	// where its unit looks for it.
	Credential string
	// Token is what a server joins with. It is given to the unit's first start, and
	// isn't kept.
	Token   string
	Root    string // put before every path, for tests; nothing is started then unless Systemctl is set
	NoStart bool   // install, and start nothing
	Out     io.Writer
	// Manual writes the manual pages into a folder, Completion the completion of a
	// shell (bash, zsh or fish).
	Manual     func(folder string) error
	Completion func(shell string, out io.Writer) error
	// Systemctl runs systemctl; nil is the machine's.
	Systemctl func(args ...string) error
	// FindKubectl finds the machine's kubectl; nil looks through PATH.
	FindKubectl func() (string, error)
}

// Paths of what is installed.
const (
	Binary     = "/usr/local/bin/fairway"
	binFolder  = "/usr/local/bin"
	unitFolder = "/etc/systemd/system"
	manFolder  = "/usr/local/share/man/man1"
	recordFile = "/usr/local/share/fairway/installed.json"
	dataFolder = "/var/lib/fairway"
	settings   = "/etc/default"
)

var completions = map[string]string{
	"bash": "/usr/local/share/bash-completion/completions/fairway",
	"zsh":  "/usr/local/share/zsh/site-functions/_fairway",
	"fish": "/usr/local/share/fish/vendor_completions.d/fairway.fish",
}

// UnitName is the unit of a role.
func UnitName(role string) string { return "fairway-" + role + ".service" }

// Install installs a role, or a newer version of it in place. What forwards in
// the kernel goes on while the unit starts anew.
func Install(o Options) error {
	unit, err := deploy.Units.ReadFile("systemd/" + UnitName(o.Role))
	if err != nil {
		return fmt.Errorf("%q is no role: it must be one of %s", o.Role, strings.Join(Roles(), ", "))
	}
	made, err := openRecord(o.Root)
	if err != nil {
		return err
	}
	if made.Role != o.Role && len(made.Links) > 0 {
		return fmt.Errorf("this machine is installed as %s: run fairway uninstall first (data stays)", made.Role)
	}
	made.Role = o.Role
	// Whatever fails, what was made until then is written down.
	err = errors.Join(o.makeAll(made, unit), made.save())
	if err != nil {
		return fmt.Errorf("install %s: %w", o.Role, err)
	}
	return o.start(made)
}

func (o *Options) makeAll(made *record, unit []byte) error {
	program, err := os.ReadFile(o.Program)
	if err != nil {
		return fmt.Errorf("read program: %w", err)
	}
	if err := made.write(Binary, program, 0o755); err != nil {
		return err
	}
	if o.Role == "server" {
		if err := o.addUser(made); err != nil {
			return err
		}
		dropIn, err := deploy.Units.ReadFile("systemd/user.conf")
		if err != nil {
			return fmt.Errorf("read drop-in: %w", err)
		}
		if err := made.write(filepath.Join(unitFolder, UnitName(o.Role)+".d", "user.conf"), dropIn, 0o644); err != nil {
			return err
		}
	}
	if err := made.write(filepath.Join(unitFolder, UnitName(o.Role)), unit, 0o644); err != nil {
		return err
	}
	if err := o.makeSettings(made, o.settingsFile(), o.Args); err != nil {
		return err
	}
	if err := o.makeGateway(made); err != nil {
		return err
	}
	if err := o.makeManual(made); err != nil {
		return err
	}
	for shell, path := range completions {
		var text strings.Builder
		if err := o.Completion(shell, &text); err != nil {
			return fmt.Errorf("write completion of %s: %w", shell, err)
		}
		if err := made.write(path, []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	return o.makeLinks(made)
}

func (o *Options) settingsFile() string { return filepath.Join(settings, "fairway-"+o.Role) }

// makeSettings writes options; nil leaves those that are there.
func (o *Options) makeSettings(made *record, path string, args []string) error {
	if args == nil && made.exists(path) {
		return nil
	}
	text, err := optionsFile(args)
	if err != nil {
		return err
	}
	made.Files[path] = "" // also one that an earlier installation left
	return made.write(path, text, 0o644)
}

// makeManual writes the manual pages by way of a folder of their own, to know them.
func (o *Options) makeManual(made *record) error {
	folder, err := os.MkdirTemp("", "fairway-man")
	if err != nil {
		return fmt.Errorf("make folder of manual pages: %w", err)
	}
	defer os.RemoveAll(folder) //nolint:errcheck // a temporary folder
	if err := o.Manual(folder); err != nil {
		return err
	}
	pages, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("list manual pages: %w", err)
	}
	for _, p := range pages {
		text, err := os.ReadFile(filepath.Join(folder, p.Name()))
		if err != nil {
			return fmt.Errorf("read manual page: %w", err)
		}
		if err := made.write(filepath.Join(manFolder, p.Name()), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// makeLinks links the plugin of kubectl, and kubectl itself if there is none.
func (o *Options) makeLinks(made *record) error {
	links := []string{"kubectl-fairway", "kubectl_complete-fairway"}
	find := o.FindKubectl
	if find == nil {
		find = func() (string, error) { return exec.LookPath("kubectl") }
	}
	if _, err := find(); err != nil {
		links = append(links, "kubectl")
	}
	for _, name := range links {
		if err := made.link(filepath.Join(binFolder, name), "fairway"); err != nil {
			return err
		}
	}
	return nil
}

// start starts the units, or has them start anew if they run.
func (o *Options) start(made *record) error {
	systemctl := o.systemctl()
	if systemctl == nil {
		fmt.Fprintf(o.Out, "installed; no systemd runs here: start it by hand as `fairway %s`\n", o.Role)
		o.sayTokenUnused()
		return o.startGateway(made, nil)
	}
	if err := systemctl("daemon-reload"); err != nil {
		return err
	}
	if o.NoStart {
		fmt.Fprintf(o.Out, "installed; start it with: systemctl enable --now %s\n", UnitName(o.Role))
		o.sayTokenUnused()
		return o.startGateway(made, systemctl)
	}
	if o.Role == gatewayRole {
		return o.startGateway(made, systemctl)
	}
	if err := systemctl("enable", UnitName(o.Role)); err != nil {
		return err
	}
	if err := o.restart(systemctl); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "installed; %s runs: journalctl -u %s\n", UnitName(o.Role), UnitName(o.Role))
	return o.startGateway(made, systemctl)
}

// Uninstall stops the unit and removes what Install made, except what somebody
// has changed since. Cleanup removes what is in the kernel, between the two. With
// purge, options and data go too, also after an Uninstall without.
func Uninstall(o Options, purge bool, cleanup func() error) error {
	made, err := openRecord(o.Root)
	if err != nil {
		return err
	}
	if made.Role == "" || !purge && len(made.Links) == 0 {
		return errors.New("nothing was installed here by fairway install")
	}
	o.Role = made.Role
	systemctl := o.systemctl()
	if systemctl != nil && made.exists(filepath.Join(unitFolder, UnitName(made.Role))) {
		if err := systemctl("disable", "--now", UnitName(made.Role)); err != nil {
			return err
		}
	}
	if systemctl != nil && made.Gateway && made.exists(gatewayUnit) {
		if err := systemctl("disable", "--now", UnitName(gatewayRole)); err != nil {
			return err
		}
	}
	if err := cleanup(); err != nil {
		return fmt.Errorf("remove what is in the kernel: %w", err)
	}
	if purge {
		err = o.purge(made)
	} else {
		fmt.Fprintf(o.Out, "kept: %s and %s (--purge removes them)\n", dataFolder, o.settingsFile())
		err = made.removeAll(o.Out, o.settingsFile(), gatewaySettings)
	}
	if err == nil && systemctl != nil {
		err = systemctl("daemon-reload")
	}
	return err
}

// purge removes everything, with options, data and the user.
func (o *Options) purge(made *record) error {
	if err := os.RemoveAll(made.at(dataFolder)); err != nil {
		return fmt.Errorf("remove data: %w", err)
	}
	if err := made.removeAll(o.Out); err != nil {
		return err
	}
	if made.User != "" && o.Root == "" {
		return run("userdel", made.User)
	}
	return nil
}
