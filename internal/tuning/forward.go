package tuning

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Forward has the kernel forward packets between interfaces, which a machine
// must do that takes others' packets to Services, and returns the settings that
// it changed. IPv6 forwarding would end that routes are learnt from router
// advertisements, so interfaces that learn them go on by accept_ra = 2 (kernel:
// Documentation/networking/ip-sysctl.rst).
func Forward(ipv6 bool) (changed []string, err error) { return forward("/proc/sys/net", ipv6) }

func forward(root string, ipv6 bool) (changed []string, err error) {
	set := func(path, from, to string) error {
		value, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && strings.TrimSpace(string(value)) != from {
			return nil
		}
		if err == nil {
			err = os.WriteFile(path, []byte(to), 0)
		}
		name, _ := strings.CutPrefix(path, root+"/")
		if err != nil {
			return fmt.Errorf("set net/%s to %s: %w", name, to, err)
		}
		changed = append(changed, "net/"+name+"="+to)
		return nil
	}
	failed := []error{set(root+"/ipv4/ip_forward", "0", "1")}
	if ipv6 {
		interfaces, err := filepath.Glob(root + "/ipv6/conf/*/accept_ra")
		failed = append(failed, err)
		for _, path := range interfaces {
			failed = append(failed, set(path, "1", "2"))
		}
		if errors.Join(failed[1:]...) == nil { // a machine must not lose its own routes
			failed = append(failed, set(root+"/ipv6/conf/all/forwarding", "0", "1"))
		}
	}
	return changed, errors.Join(failed...)
}
