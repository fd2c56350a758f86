package ahead

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fairway-net/fairway/internal/iptables"
)

// readLegacy reads the tables whose rules come before those of Services. A table is there only
// once somebody has used it; asking the program would load it.
func readLegacy(ctx context.Context, six bool) (list []Rule, err error) {
	of, program, family := iptables.IPv4, "iptables-legacy", "ip"
	if six {
		of, program, family = iptables.IPv6, "ip6tables-legacy", "ip6"
	}
	tables, err := iptables.LegacyTables(of)
	if err != nil {
		return nil, err
	}
	for _, table := range tables {
		if !slices.Contains([]string{"raw", "mangle", "nat"}, table) {
			continue
		}
		out, err := exec.CommandContext(ctx, program, "-w", "5", "-t", table, "-S").Output()
		if err != nil {
			return list, fmt.Errorf("%s -t %s -S: %w", program, table, err)
		}
		list = append(list, legacyRules(family, table, out)...)
	}
	return list, nil
}

// quoted are comments, whose words mean nothing.
var quoted = regexp.MustCompile(`"(\\.|[^"\\])*"`)

// legacyRules reads what iptables -S says of a table.
func legacyRules(family, table string, text []byte) (list []Rule) {
	chains := map[string][][]string{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		words := strings.Fields(quoted.ReplaceAllString(lines.Text(), "comment"))
		if len(words) > 2 && words[0] == "-A" && !isOfServices(words[1]) {
			chains[words[1]] = append(chains[words[1]], words[2:])
		}
	}
	rules := func(chain string, come packets) (steps []step, _ error) {
		for _, words := range chains[chain] {
			s := readWords(words, come)
			if s.effect = targets[s.jump]; s.effect != "" {
				s.jump = ""
			}
			steps = append(steps, s)
		}
		return steps, nil
	}
	for _, base := range []string{"PREROUTING", "OUTPUT"} {
		w := &walker{rules: rules, found: func(chain string, s step) {
			list = append(list, Rule{
				Where: fmt.Sprintf("table %s %s (iptables-legacy), chain %s", family, table, chain), Effect: s.effect, packets: s.packets,
			})
		}}
		_, _ = w.walk(base, packets{ipv4: family == "ip", ipv6: family == "ip6"}) // text has no errors
	}
	return list
}

// readWords understands a rule as iptables writes it. The target, or the chain that it leads
// to, is in jump.
func readWords(words []string, come packets) step {
	s := step{packets: come}
	for i := 0; i+1 < len(words); i += 2 {
		negated := words[i] == "!"
		if negated {
			i++
		}
		word, value := words[i], ""
		if i+1 < len(words) {
			value = words[i+1]
		}
		if word == "-j" || word == "-g" {
			s.jump = value
			return s
		}
		if negated || !s.match(word, value) {
			s.more = true
		}
	}
	return s
}

// match takes in an option of a rule, and reports whether it was understood.
func (s *step) match(word, value string) bool {
	switch word {
	case "-p":
		s.proto = map[string]uint8{"tcp": 6, "udp": 17, "sctp": 132}[value]
		return s.proto != 0
	case "-d":
		to, err := netip.ParsePrefix(value)
		s.packets.to = to
		return err == nil
	case "--dport", "--dports":
		list, ok := parsePorts(value)
		s.ports = list
		return ok
	case "-m":
		return slices.Contains([]string{"tcp", "udp", "sctp", "multiport", "comment"}, value)
	case "--comment":
		return true
	}
	return false
}

// parsePorts reads "80", "80:90" and lists of them.
func parsePorts(text string) (list [][2]uint16, ok bool) {
	for one := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(one, ":")
		if !isRange {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil {
			return nil, false
		}
		list = append(list, [2]uint16{uint16(from), uint16(to)})
	}
	return list, true
}
