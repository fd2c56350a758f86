package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairway-net/fairway/dns"
	"github.com/fairway-net/fairway/internal/netns"
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

// resolvConfPath is where resolvers look (resolv.conf(5)).
const resolvConfPath = "/etc/resolv.conf"

// files are what pods of a namespace find in the place of the host's files:
// the lab's resolv.conf, which is written here.
func (c Config) files(namespace string) (map[string]string, error) {
	path := filepath.Join(Dir(c.Name), "resolv.conf."+namespace)
	text := c.resolvConf(namespace)
	if have, err := os.ReadFile(path); err != nil || string(have) != text { // never cut short what is in use
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("write resolv.conf: %w", err)
		}
	}
	return map[string]string{resolvConfPath: path}, nil
}

// useClusterDNS has the calling thread, and what it executes, find the lab's
// resolv.conf at /etc/resolv.conf.
func useClusterDNS(name, target string) error {
	state, err := Load(name)
	if err != nil {
		return err
	}
	namespace, _, qualified := strings.Cut(target, "/")
	if !qualified {
		namespace = "default"
	}
	files, err := state.Config.files(namespace)
	if err != nil {
		return err
	}
	return netns.Overlay(files)
}
