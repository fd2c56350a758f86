package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dns"
)

// clusterDNS is the address of the lab's DNS Service: the tenth of the range,
// as everywhere.
func (c Config) clusterDNS() netip.Addr {
	a := c.ServiceCIDRs[0].Addr()
	for range 10 {
		a = a.Next()
	}
	return a
}

// resolvConf is what a pod of a namespace finds in /etc/resolv.conf, and a node
// or the client as if it were one of the namespace default.
func (c Config) resolvConf(namespace string) string {
	zone := dns.DefaultOptions().Zone
	return fmt.Sprintf("search %s.svc.%s svc.%s %s\nnameserver %s\noptions ndots:5\n", namespace, zone, zone, zone, c.clusterDNS())
}

// useClusterDNS has the calling thread, and what it executes, find the lab's
// resolv.conf at /etc/resolv.conf: by a mount that nobody else sees.
func useClusterDNS(name, target string) error {
	state, err := Load(name)
	if err != nil {
		return err
	}
	namespace, _, qualified := strings.Cut(target, "/")
	if !qualified {
		namespace = "default"
	}
	const well = "/etc/resolv.conf"
	if _, err := os.Stat(well); errors.Is(err, fs.ErrNotExist) {
		return nil // nothing to put it over; programs then ask the loopback
	}
	path := filepath.Join(Dir(name), "resolv.conf."+namespace)
	if err := os.WriteFile(path, []byte(state.Config.resolvConf(namespace)), 0o644); err != nil {
		return fmt.Errorf("write resolv.conf: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep mounts from the others: %w", err)
	}
	if err := unix.Mount(path, well, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount resolv.conf: %w", err)
	}
	return nil
}
