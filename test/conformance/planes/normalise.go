package planes

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// normalise takes out of a dump what changes by itself, and what the usual
// tools leave behind for good when a rule is deleted: the empty built-in
// tables and chains of iptables.
func normalise(command string, out []byte) (string, error) {
	if command == "nft" {
		return normaliseNft(out)
	}
	return normaliseIptables(string(out)), nil
}

// nftObject is what `nft -j list ruleset` says of an object, as far as it
// matters here.
type nftObject struct {
	kind                string
	Family, Table, Name string
	Chain               string // of a rule
	Hook, Policy        string // of a base chain
	text                string
}

// builtin are the tables that the iptables command makes by itself.
var builtin = []string{"filter", "nat", "mangle", "raw", "security"}

// ofIptables reports whether the object belongs to a table as iptables makes it.
func (o nftObject) ofIptables() bool {
	return (o.Family == "ip" || o.Family == "ip6") && slices.Contains(builtin, o.Table)
}

// counters are packet counts in rules, and the handles that count up as
// objects come.
var counters = regexp.MustCompile(`"(packets|bytes|handle)": *[0-9]+,? *`)

func parseNft(out []byte) ([]nftObject, error) {
	var ruleset struct {
		Nftables []map[string]json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal(out, &ruleset); err != nil {
		return nil, fmt.Errorf("read the ruleset: %w", err)
	}
	var objects []nftObject
	for _, wrapped := range ruleset.Nftables {
		for kind, raw := range wrapped {
			if kind == "metainfo" {
				continue
			}
			o := nftObject{kind: kind, text: kind + " " + counters.ReplaceAllString(string(raw), "")}
			if err := json.Unmarshal(raw, &o); err != nil {
				return nil, fmt.Errorf("read a %s: %w", kind, err)
			}
			if kind == "table" {
				o.Table = o.Name
			}
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// normaliseNft keeps one line for each object of the ruleset.
func normaliseNft(out []byte) (string, error) {
	objects, err := parseNft(out)
	if err != nil {
		return "", err
	}
	hasRules := map[[3]string]bool{}
	for _, o := range objects {
		if o.kind == "rule" {
			hasRules[[3]string{o.Family, o.Table, o.Chain}] = true
		}
	}
	objects = slices.DeleteFunc(objects, func(o nftObject) bool {
		return o.kind == "chain" && o.ofIptables() && o.Hook != "" && o.Policy == "accept" &&
			!hasRules[[3]string{o.Family, o.Table, o.Name}]
	})
	used := map[[2]string]bool{}
	for _, o := range objects {
		if o.kind != "table" {
			used[[2]string{o.Family, o.Table}] = true
		}
	}
	var lines []string
	for _, o := range objects {
		if o.kind == "table" && o.ofIptables() && !used[[2]string{o.Family, o.Table}] {
			continue
		}
		lines = append(lines, o.text)
	}
	return strings.Join(lines, "\n"), nil
}

// normaliseIptables leaves out comments, packet counts and tables without rules
// or chains of their own.
func normaliseIptables(out string) string {
	var kept, table []string
	content := false
	for _, line := range strings.Split(out, "\n") {
		switch {
		case strings.HasPrefix(line, "*"):
			table, content = []string{line}, false
		case line == "COMMIT":
			if content {
				kept = append(kept, table...)
			}
		case strings.HasPrefix(line, ":"):
			f := strings.Fields(line)
			table = append(table, strings.Join(f[:len(f)-1], " "))
			content = content || f[1] != "ACCEPT"
		case strings.HasPrefix(line, "#") || line == "":
		default:
			table = append(table, line)
			content = true
		}
	}
	return strings.Join(kept, "\n")
}
