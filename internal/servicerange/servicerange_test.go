package servicerange

import (
	"net/netip"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	used := []use{
		{netip.MustParsePrefix("10.96.5.14/32"), "the address 10.96.5.14 of eth0", 2},
		{netip.MustParsePrefix("10.97.0.0/16"), "the route to 10.97.0.0/16 by eth0", 2},
		{netip.MustParsePrefix("fd00:96::7/128"), "the address fd00:96::7 of eth0", 2},
	}
	for wanted, problem := range map[string]string{
		"10.96.0.0/16":   "--service-cidr 10.96.0.0/16 contains the address 10.96.5.14 of eth0; 10.98.0.0/16 is free",
		"10.97.0.0/16":   "contains the route to 10.97.0.0/16 by eth0; 10.98.0.0/16 is free",
		"10.97.128.0/24": "", // the route is wider: other machines behind it may not be reached, but this one works
		"10.0.0.0/8":     "contains the address 10.96.5.14 of eth0",
		"fd00:96::/112":  "contains the address fd00:96::7 of eth0; fd00:60::/112 is free",
		"172.20.0.0/16":  "",
	} {
		err := check("--service-cidr", netip.MustParsePrefix(wanted), used)
		if problem == "" && err != nil || problem != "" && (err == nil || !strings.Contains(err.Error(), problem)) {
			t.Errorf("%s: %v, want %q", wanted, err, problem)
		}
	}
}
