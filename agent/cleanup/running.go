package cleanup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// proxy is a process that forwards for this network namespace.
type proxy struct {
	pid  int
	name string // "kube-proxy", or "fairway agent"
}

// RefuseBesideProxy is an error if an agent, or, unless it is expected, kube-proxy
// runs in this network namespace.
func RefuseBesideProxy(kubeProxyExpected bool) error {
	named, err := RunningProxies(kubeProxyExpected)
	if err != nil || len(named) == 0 {
		return err
	}
	return fmt.Errorf("nothing is removed beside %s: stop it first, or use --force", strings.Join(named, ", "))
}

// RunningProxies names the agents of this machine, and the kube-proxies that
// nobody expects.
func RunningProxies(kubeProxyExpected bool) (named []string, err error) {
	running, err := proxies("/proc")
	if err != nil {
		return nil, err
	}
	for _, p := range running {
		if p.name != "kube-proxy" || !kubeProxyExpected {
			named = append(named, fmt.Sprintf("%s (process %d)", p.name, p.pid))
		}
	}
	return named, nil
}

// proxies finds the agents and kube-proxies of this network namespace. Those of
// other PID namespaces aren't seen.
func proxies(proc string) ([]proxy, error) {
	own, err := os.Readlink(filepath.Join(proc, "self/ns/net"))
	if err != nil {
		return nil, fmt.Errorf("look for running proxies: %w", err)
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("look for running proxies: %w", err)
	}
	var found []proxy
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join(proc, e.Name(), "cmdline"))
		name := proxyName(strings.Split(strings.TrimRight(string(line), "\x00"), "\x00"))
		if err != nil || name == "" {
			continue // not one, or it has ended meanwhile
		}
		netns, err := os.Readlink(filepath.Join(proc, e.Name(), "ns/net"))
		if errors.Is(err, fs.ErrNotExist) || err == nil && netns != own {
			continue
		}
		found = append(found, proxy{pid, name}) // also one of which it can't be told
	}
	return found, nil
}

// proxyName says which proxy a command line runs; "" if none.
func proxyName(args []string) string {
	switch filepath.Base(args[0]) {
	case "kube-proxy":
		return "kube-proxy"
	case "fairway", "fairway-agent":
		for _, role := range []string{"agent", "up", "join"} {
			if slices.Contains(args[1:], role) && !slices.Contains(args, "--cleanup") && !slices.Contains(args, "--init-only") {
				return "fairway " + role
			}
		}
	}
	return ""
}
