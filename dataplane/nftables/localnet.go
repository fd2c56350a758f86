package nftables

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A connection from 127.0.0.1 to a node port on localhost leaves the node with
// that source until it is masqueraded, and its answers come back to it. The
// kernel lets neither pass unless route_localnet is set
// (Documentation/networking/ip-sysctl.rst). The filter-prerouting chain drops
// what this would let others send to 127.0.0.0/8.
const localnetSysctl = "/proc/sys/net/ipv4/conf/all/route_localnet"

// defaultStateDir is kernel.Options' default.
const defaultStateDir = "/run/fairway"

// setLocalnet turns route_localnet on, or puts it back to what it was. What it
// was is kept in a file, since another process may have to do that.
func setLocalnet(stateDir string, on bool) error {
	if stateDir == "" {
		stateDir = defaultStateDir
	}
	file := filepath.Join(stateDir, "nftables-route_localnet")
	before, err := os.ReadFile(file)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read what route_localnet was: %w", err)
	case !on && err != nil:
		return nil // never turned on
	case on && err != nil:
		return turnLocalnetOn(stateDir, file)
	case on:
		return writeLocalnet([]byte("1\n"))
	}
	if err := writeLocalnet(before); err != nil {
		return err
	}
	if err := os.Remove(file); err != nil {
		return fmt.Errorf("forget what route_localnet was: %w", err)
	}
	return nil
}

func turnLocalnetOn(stateDir, file string) error {
	before, err := os.ReadFile(localnetSysctl)
	if err != nil {
		return fmt.Errorf("read route_localnet: %w", err)
	}
	if strings.TrimSpace(string(before)) == "1" {
		return nil // somebody else's doing, and not to be undone
	}
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return fmt.Errorf("keep what route_localnet was: %w", err)
	}
	if err := os.WriteFile(file, before, 0o644); err != nil {
		return fmt.Errorf("keep what route_localnet was: %w", err)
	}
	return writeLocalnet([]byte("1\n"))
}

func writeLocalnet(value []byte) error {
	if err := os.WriteFile(localnetSysctl, value, 0); err != nil {
		return fmt.Errorf("set route_localnet, which node ports on localhost need: %w", err)
	}
	return nil
}
