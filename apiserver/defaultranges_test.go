package apiserver

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func parseAddrs(texts ...string) (list []netip.Addr) {
	for _, t := range texts {
		list = append(list, netip.MustParseAddr(t))
	}
	return list
}

// TestDefaultServiceCIDRs: the ranges follow the machine and the load balancer ranges.
func TestDefaultServiceCIDRs(t *testing.T) {
	for _, c := range []struct {
		name, advertise string
		of              Families
		want            []netip.Prefix
	}{
		{"IPv4 only", "127.0.0.1", Families{parseAddrs("10.77.0.100"), parseAddrs("10.77.0.11")}, []netip.Prefix{serviceRange4}},
		{"IPv6 only", "127.0.0.1", Families{parseAddrs("fd77::100"), parseAddrs("fd77::11")}, []netip.Prefix{serviceRange6}},
		{"IPv6 only, for others", "fd77::11", Families{nil, parseAddrs("fd77::11")}, []netip.Prefix{serviceRange6}},
		{"both", "127.0.0.1", Families{parseAddrs("10.77.0.100"), parseAddrs("fd77::11", "10.77.0.11")}, []netip.Prefix{serviceRange4, serviceRange6}},
		{"both, served at IPv6", "fd77::11", Families{parseAddrs("10.77.0.100"), parseAddrs("10.77.0.11", "fd77::11")}, []netip.Prefix{serviceRange6, serviceRange4}},
		{"a range of the family that the machine lacks", "10.77.0.11", Families{parseAddrs("fd77::100"), parseAddrs("10.77.0.11")}, []netip.Prefix{serviceRange4, serviceRange6}},
		{"nothing known", "127.0.0.1", Families{}, []netip.Prefix{serviceRange4}},
	} {
		if got := defaultServiceCIDRs(netip.MustParseAddr(c.advertise), c.of); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// TestServiceCIDRsAreRemembered: what a cluster began with stays, whatever addresses the
// machine gets later; what is given counts; clusters of earlier versions stay as they are.
func TestServiceCIDRsAreRemembered(t *testing.T) {
	v4, v6 := Families{Machine: parseAddrs("10.77.0.11")}, Families{Machine: parseAddrs("fd77::11")}
	settle := func(dir string, given bool, of Families) netip.Prefix {
		t.Helper()
		c := DefaultConfig()
		c.DataDir = dir
		if given {
			c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.50.0.0/16")}
		}
		if err := c.SettleServiceCIDRs(given, of); err != nil {
			t.Fatal(err)
		}
		return c.ServiceCIDRs[0]
	}
	store := func(dir string) {
		t.Helper()
		wal := filepath.Join(dir, "etcd", "member", "wal")
		if err := os.MkdirAll(wal, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(wal, "0000000000000000-0000000000000000.wal"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "new")
	if got := settle(dir, false, v4); got != serviceRange4 {
		t.Errorf("a first try: %v", got)
	}
	if got := settle(dir, false, v6); got != serviceRange6 {
		t.Errorf("a second try, before anything was stored: %v", got)
	}
	store(dir)
	if got := settle(dir, false, v4); got != serviceRange6 {
		t.Errorf("a later start on a machine with other addresses: %v, want what the cluster began with", got)
	}
	if got := settle(dir, true, v4); got.String() != "10.50.0.0/16" {
		t.Errorf("ranges that are given: %v", got)
	}
	if got := settle(dir, false, v4); got.String() != "10.50.0.0/16" {
		t.Errorf("a start after ranges were given: %v", got)
	}
	old := t.TempDir()
	store(old)
	if got := settle(old, false, v6); got != serviceRange4 {
		t.Errorf("a cluster of an earlier version: %v", got)
	}
}
