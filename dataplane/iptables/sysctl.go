package iptables

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// localnetFile makes the kernel route packets from and to 127.0.0.0/8 (net.
// ipv4.conf.all.route_localnet, Documentation/networking/ip-sysctl.rst), which
// node ports on 127.0.0.1 need: answers to them come in through an interface.
const localnetFile = "/proc/sys/net/ipv4/conf/all/route_localnet"

// stateDir is where the setting found is kept until it is put back.
func stateDir(o kernel.Options) string {
	if o.StateDir != "" {
		return o.StateDir
	}
	return "/run/fairway"
}

func (p *Plane) localnetRecord() string {
	return filepath.Join(stateDir(p.options), "iptables-route_localnet")
}

// canRouteLocalnet reports whether the setting is as needed or may be changed.
func canRouteLocalnet() bool {
	value, err := os.ReadFile(localnetFile)
	return err == nil && (strings.TrimSpace(string(value)) == "1" || unix.Access(localnetFile, unix.W_OK) == nil)
}

// routeLocalnet has packets of 127.0.0.0/8 routed if that is needed, and what
// was set before put back if not.
func (p *Plane) routeLocalnet(needed bool) error {
	if needed == p.localnet && p.localnetKnown {
		return nil
	}
	var err error
	if needed {
		err = p.setLocalnet()
	} else {
		err = p.resetLocalnet()
	}
	if err != nil {
		return fmt.Errorf("set sysctl net.ipv4.conf.all.route_localnet: %w", err)
	}
	p.localnet, p.localnetKnown = needed, true
	return nil
}

func (p *Plane) setLocalnet() error {
	before, err := os.ReadFile(localnetFile)
	if err != nil || strings.TrimSpace(string(before)) == "1" {
		return err
	}
	if err := os.MkdirAll(stateDir(p.options), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(p.localnetRecord(), before, 0o644); err != nil {
		return err
	}
	return os.WriteFile(localnetFile, []byte("1\n"), 0o644)
}

func (p *Plane) resetLocalnet() error {
	before, err := os.ReadFile(p.localnetRecord())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(localnetFile, before, 0o644); err != nil {
		return err
	}
	return os.Remove(p.localnetRecord())
}
