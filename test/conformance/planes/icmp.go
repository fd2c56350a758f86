package planes

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// unreachables counts the ICMP destination-unreachable errors that the probing
// host has had in the probe's IP family.
func (s *Topology) unreachables(p Probe) (count int, err error) {
	err = s.hosts[p.From.Name].Do(func() error {
		if p.To.Addr().Is6() {
			count, err = snmp6("Icmp6InDestUnreachs")
		} else {
			count, err = snmp4("Icmp", "InDestUnreachs")
		}
		return err
	})
	return count, err
}

// snmp6 reads a counter of the thread's namespace.
func snmp6(name string) (int, error) {
	text, err := os.ReadFile("/proc/thread-self/net/snmp6")
	if err != nil {
		return 0, fmt.Errorf("read IPv6 counters: %w", err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			return strconv.Atoi(f[1])
		}
	}
	return 0, fmt.Errorf("read IPv6 counters: no %s", name)
}

// snmp4 reads a counter of the thread's namespace: a line of names is followed
// by one of numbers.
func snmp4(group, name string) (int, error) {
	text, err := os.ReadFile("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, fmt.Errorf("read IPv4 counters: %w", err)
	}
	var names []string
	for _, line := range strings.Split(string(text), "\n") {
		rest, ok := strings.CutPrefix(line, group+": ")
		if !ok {
			continue
		}
		if names == nil {
			names = strings.Fields(rest)
			continue
		}
		for i, number := range strings.Fields(rest) {
			if i < len(names) && names[i] == name {
				return strconv.Atoi(number)
			}
		}
	}
	return 0, fmt.Errorf("read IPv4 counters: no %s of %s", name, group)
}
