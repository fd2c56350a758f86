// Package host reads the facts of this machine that decide whether packets of
// Services get through: sysctls, and what firewalls there are. It changes nothing.
package host

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/internal/iptables"
)

// sysctls that matter.
var sysctls = []string{
	"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.ipv4.conf.all.rp_filter",
	"net.bridge.bridge-nf-call-iptables", "net.netfilter.nf_conntrack_count", "net.netfilter.nf_conntrack_max",
}

// Read reads the facts of the calling thread's network namespace. What can't be read is listed in them, with the reason.
func Read(ctx context.Context) *doctor.Host {
	h := &doctor.Host{Sysctls: map[string]string{}}
	for _, name := range sysctls {
		data, err := os.ReadFile(filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/")))
		if err == nil {
			h.Sysctls[name] = strings.TrimSpace(string(data))
		} else if !errors.Is(err, os.ErrNotExist) {
			h.Unreadable = append(h.Unreadable, fmt.Sprintf("sysctl %s: %v", name, err))
		}
	}
	counts, err := os.ReadFile("/proc/thread-self/net/stat/nf_conntrack")
	if err == nil {
		h.Full, h.Clashed = conntrackDrops(string(counts))
	} else if !errors.Is(err, os.ErrNotExist) { // the kernel may be without it
		h.Unreadable = append(h.Unreadable, fmt.Sprintf("what conntrack dropped: %v", err))
	}
	if h.Sysctls["net.bridge.bridge-nf-call-iptables"] == "1" {
		if h.UplinkBridges, err = uplinkBridges(); err != nil {
			h.Unreadable = append(h.Unreadable, fmt.Sprintf("whether the uplink is a bridge: %v", err))
		}
	}
	if err := readNFTables(h); err != nil {
		h.Unreadable = append(h.Unreadable, fmt.Sprintf("nf_tables rules: %v (try as root)", err))
	}
	for _, six := range []bool{false, true} {
		if err := readLegacy(ctx, h, six); err != nil {
			h.Unreadable = append(h.Unreadable, fmt.Sprintf("iptables-legacy rules: %v", err))
		}
	}
	return h
}

// conntrackDrops reads the kernel's table of counters: names, and a line for each processor,
// in hexadecimal.
func conntrackDrops(table string) (full, clashed uint64) {
	var names []string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names[:min(len(names), len(fields))] {
			n, err := strconv.ParseUint(fields[i], 16, 64)
			switch {
			case err != nil:
			case name == "drop":
				full += n
			case name == "insert_failed":
				clashed += n
			}
		}
	}
	return full, clashed
}

// families as nft names them.
var families = map[nftables.TableFamily]string{
	nftables.TableFamilyINet: "inet", nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6",
	nftables.TableFamilyARP: "arp", nftables.TableFamilyBridge: "bridge", nftables.TableFamilyNetdev: "netdev",
}

// readNFTables lists the chains of nf_tables. Rules are counted only in tables of
// iptables, where a table without rules means nothing.
func readNFTables(h *doctor.Host) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open netlink socket: %w", err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		return fmt.Errorf("list chains: %w", err)
	}
	for _, c := range chains {
		chain := doctor.Chain{Family: families[c.Table.Family], Table: c.Table.Name, Name: c.Name}
		if c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookForward && c.Table.Family != nftables.TableFamilyNetdev {
			chain.Hook = "forward"
		}
		chain.Drops = c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
		if c.Table.Name == "filter" || c.Table.Name == "nat" {
			rules, err := conn.GetRules(c.Table, c)
			if err != nil {
				return fmt.Errorf("list rules of chain %s: %w", c.Name, err)
			}
			chain.Rules = len(rules)
		}
		if c.Hooknum != nil && c.Table.Name != "fairway" {
			rules, err := conn.GetRules(c.Table, c)
			if err != nil {
				return fmt.Errorf("list rules of chain %s: %w", c.Name, err)
			}
			chain.DropsNames = slices.ContainsFunc(rules, dropsNames)
		}
		h.Chains = append(h.Chains, chain)
	}
	return nil
}

// dropsNames reports whether a rule compares something with port 53, and drops or rejects.
func dropsNames(r *nftables.Rule) bool {
	compares, ends := false, false
	for _, e := range r.Exprs {
		switch x := e.(type) {
		case *expr.Cmp:
			compares = compares || x.Op == expr.CmpOpEq && bytes.Equal(x.Data, []byte{0, 53})
		case *expr.Verdict:
			ends = ends || x.Kind == expr.VerdictDrop
		case *expr.Reject:
			ends = true
		}
	}
	return compares && ends
}

// readLegacy lists the chains of iptables-legacy. A table is there only once
// somebody has used it; asking the program would load it.
func readLegacy(ctx context.Context, h *doctor.Host, six bool) error {
	of, program, family := iptables.IPv4, "iptables-legacy", "ip"
	if six {
		of, program, family = iptables.IPv6, "ip6tables-legacy", "ip6"
	}
	tables, err := iptables.LegacyTables(of)
	if err != nil {
		return err
	}
	for _, table := range tables {
		out, err := exec.CommandContext(ctx, program, "-w", "5", "-t", table, "-S").Output()
		if err != nil {
			return fmt.Errorf("%s -t %s -S: %w", program, table, err)
		}
		h.Chains = append(h.Chains, legacyChains(family, table, out)...)
	}
	return nil
}

// legacyChains reads the output of iptables -S: "-P FORWARD DROP", "-N NAME" and
// "-A CHAIN rule".
func legacyChains(family, table string, rules []byte) []doctor.Chain {
	var list []doctor.Chain
	index := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(rules)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "-P", "-N":
			c := doctor.Chain{Family: family, Table: table, Name: words[1], Legacy: true}
			if words[1] == "FORWARD" && words[0] == "-P" {
				c.Hook = "forward"
			}
			c.Drops = len(words) > 2 && words[2] == "DROP"
			index[words[1]] = len(list)
			list = append(list, c)
		case "-A":
			if i, ok := index[words[1]]; ok {
				list[i].Rules++
				names, rule := false, words[2:]
				for j := range rule[:max(len(rule)-1, 0)] {
					names = names || rule[j] == "--dport" && rule[j+1] == "53"
				}
				if names && (slices.Contains(rule, "DROP") || slices.Contains(rule, "REJECT")) {
					list[i].DropsNames = true
				}
			}
		}
	}
	return list
}
