package planes

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// OtherFamilySuffix is behind the name of a case that is played with the two IP
// families swapped.
const OtherFamilySuffix = "-swapped"

// SwapFamilies rewrites a case so that IPv4 and IPv6 change places: addresses and
// prefixes in steps and manifests, hosts in destinations and endpoints, the
// names of the families, and commands that exist once for each family. Line
// numbers stay as they are.
func SwapFamilies(data []byte) ([]byte, error) {
	lines := strings.Split(string(data), "\n")
	files := false
	for i, line := range lines {
		if strings.HasPrefix(line, "-- ") {
			files = true
			continue
		}
		var err error
		if lines[i], err = swapAddresses(line, files); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if lines[i] = familyNames.Replace(lines[i]); !files {
			lines[i] = swapStep(lines[i])
		}
	}
	return []byte(strings.Join(lines, "\n")), nil
}

var familyNames = strings.NewReplacer("IPv4", "IPv6", "IPv6", "IPv4")

// swapStep swaps what stands for an address in a step: "node:80" and "node6:80".
func swapStep(line string) string {
	if strings.HasPrefix(line, "[") {
		end := strings.Index(line, "] ") + len("] ")
		return line[:end] + swapStep(line[end:])
	}
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return line
	}
	switch args := fields[1:]; fields[0] {
	case "probe":
		args[2] = swapDestination(args[2])
	case "alike":
		args[2], args[3] = swapDestination(args[2]), swapDestination(args[3])
	case "flow", "load", "forgets":
		args[3] = swapDestination(args[3])
	case "endpoints":
		swapEndpoints(args)
	case "run":
		swapCommand(args)
	}
	return strings.Join(fields, " ")
}

// swapDestination swaps "node:80" and "node6:80", "localhost:80" and "[::1]:80".
func swapDestination(to string) string {
	if port, ok := strings.CutPrefix(to, "[::1]:"); ok {
		return "localhost:" + port
	}
	host, port, ok := strings.Cut(to, ":")
	if _, err := partyAddr(host); !ok || err != nil {
		return to
	}
	return swapParty(host) + ":" + port
}

func swapParty(name string) string {
	if short, six := strings.CutSuffix(name, "6"); six {
		return short
	}
	return name + "6"
}

// swapEndpoints swaps the hosts, or, if there is none, what the Service's name
// says of the family.
func swapEndpoints(args []string) {
	for i, word := range args[2:] {
		name, state, has := strings.Cut(word, "=")
		if args[i+2] = swapParty(name); has {
			args[i+2] += "=" + state
		}
	}
	if len(args) > 2 {
		return
	}
	if short, six := strings.CutSuffix(args[0], "-6"); six {
		args[0] = short
	} else {
		args[0] += "-6"
	}
}

// swapCommand swaps iptables and ip6tables, and "ip -4" and "ip -6".
func swapCommand(args []string) {
	other := map[string]string{"iptables": "ip6tables", "ip6tables": "iptables", "-4": "-6", "-6": "-4"}
	for i, word := range args[:min(2, len(args))] {
		if to, found := other[word]; found {
			args[i] = to
		}
	}
}

// counterparts are the prefixes of cases, with what their addresses become; the
// number of a Service, or of a node and a pod, stays.
var counterparts = []struct{ prefix4, prefix6 netip.Prefix }{
	{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")},
	{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56")},
	{netip.MustParsePrefix("10.244.2.0/24"), netip.MustParsePrefix("fd00:10:244:2::/64")},
	{netip.MustParsePrefix("172.30.100.0/24"), netip.MustParsePrefix("fd00:172:30::1:0/112")},
	{netip.MustParsePrefix("172.30.0.0/16"), netip.MustParsePrefix("fd00:172:30::/64")},
	{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:51::/48")},
	{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32")},
}

// literal is an address, a prefix, or an address in brackets.
var literal = regexp.MustCompile(`\[?\b(\d+\.\d+\.\d+\.\d+|(fd00|2001:db8):[0-9a-f:]*[0-9a-f:])(/\d+)?(\]:)?`)

// swapAddresses swaps all literals of a line. In manifests, IPv6 addresses are
// quoted, since YAML may take a colon for its own; in steps, they are in brackets
// where a port follows.
func swapAddresses(line string, manifest bool) (out string, err error) {
	at := 0
	for _, m := range literal.FindAllStringIndex(line, -1) {
		text := line[m[0]:m[1]]
		list := strings.HasPrefix(text, "[") && !strings.HasSuffix(text, "]:") // of YAML
		swapped, swapErr := swapLiteral(strings.Trim(text, "[]:"), text)
		if swapErr != nil {
			return "", swapErr
		}
		six := strings.Contains(swapped, ":")
		quoted := strings.Count(line[:m[0]], `"`)%2 == 1
		switch rest := line[m[1]:]; {
		case manifest && six && !quoted:
			swapped = `"` + swapped + `"`
		case !manifest && six && strings.HasPrefix(rest, ":"):
			swapped = "[" + swapped + "]"
		case strings.HasSuffix(text, "]:"):
			swapped += ":"
		}
		if list {
			swapped = "[" + swapped
		}
		out, at = out+line[at:m[0]]+swapped, m[1]
	}
	return out + line[at:], nil
}

// swapLiteral swaps one address or prefix.
func swapLiteral(literal, text string) (string, error) {
	for _, p := range counterparts {
		switch literal {
		case p.prefix4.String():
			return p.prefix6.String(), nil
		case p.prefix6.String():
			return p.prefix4.String(), nil
		}
	}
	address, bits, isPrefix := strings.Cut(literal, "/")
	a, err := netip.ParseAddr(address)
	if err != nil {
		return "", fmt.Errorf("address %q: %w", text, err)
	}
	swapped, err := swapAddress(a)
	if err != nil {
		return "", err
	}
	if !isPrefix {
		return swapped.String(), nil
	}
	if bits != fmt.Sprint(a.BitLen()) {
		return "", fmt.Errorf("prefix %s has no counterpart in the other family", literal)
	}
	return netip.PrefixFrom(swapped, swapped.BitLen()).String(), nil
}

func swapAddress(a netip.Addr) (netip.Addr, error) {
	if p, found := hostAt(a); found {
		if a == p.Addr4 {
			return p.Addr6, nil
		}
		return p.Addr4, nil
	}
	var numbers [4]int
	for format4, format6 := range map[string]string{
		"10.96.0.%d": "fd00:10:96::%d", "203.0.113.%d": "2001:db8::%d", "10.244.%d.%d": "fd00:10:244:%d::%d",
	} {
		for from, to := range map[string]string{format4: format6, format6: format4} {
			n := strings.Count(from, "%d")
			var into []any
			for i := range n {
				into = append(into, &numbers[i])
			}
			if _, err := fmt.Sscanf(a.String(), from, into...); err != nil {
				continue
			}
			var values []any
			for i := range n {
				values = append(values, numbers[i])
			}
			if fmt.Sprintf(from, values...) == a.String() {
				return netip.ParseAddr(fmt.Sprintf(to, values...))
			}
		}
	}
	return a, fmt.Errorf("address %s has no counterpart in the other family", a)
}
