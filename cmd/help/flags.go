// Package help lays out what `fairway --help` prints: commands and flags in
// groups, with examples. It reads commands and knows none of their behaviour.
package help

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// many is from how many flags on these are shown in groups.
const many = 12

// width is of lines of help, in columns.
const width = 110

// flagGroup is flags that belong together. A name that ends in * is the
// beginning of names; "server --data-dir" is that flag of one command.
type flagGroup struct {
	title string
	names []string
}

// Other is the title over flags that are in no group.
const Other = "Other"

// flagGroups are the groups in the order in which they are shown. The first one
// that names a flag has it.
var flagGroups = []flagGroup{
	{"API server", []string{
		"up --bind-address", "server --bind-address", "up --service-cidr", "server --service-cidr", "data-dir", "secure-port",
		"advertise-address", "tls-san", "service-node-port-range", "node-grace", "token-auth-file", "audit-*",
	}},
	{"Several servers", []string{"cluster-init", "join", "server-name", "peer-port", "token", "token-file"}},
	{"Storage of the API", []string{"etcd-*", "snapshot-*"}},
	{"The API to use", []string{"kubeconfig", "master", "kube-api-*", "filename", "namespace", "agent-socket"}},
	{"Data plane", []string{
		"mode", "scheduler", "service-cidr", "nodeport-addresses", "localhost-nodeports", "masquerade-all", "direct-return", "xdp", "sync-period",
	}},
	{"Configuration", []string{"config", "write-config-to", "feature-gates", "init-only", "cleanup"}},
	{"This machine", []string{
		"agent --bind-address", "node-name", "register-node", "ip-forward", "state-dir", "cgroup", "systemd", "oom-score-adj",
	}},
	{"Which packets are from pods", []string{"cluster-cidr", "pod-*", "node-cidr", "detect-local-mode"}},
	{"Connections (conntrack)", []string{"conntrack-*"}},
	{"iptables and ipvs mode", []string{"iptables-*", "ipvs-*"}},
	{"Load balancer addresses", []string{"load-balancer-range", "lb-class", "announce", "announce-namespace", "ignore-exclude-lb"}},
	{"Gateways", []string{"gateway", "gateway-engine", "gateway-processes", "gateway-machines", "acme-directory", "acme-email", "acme-ca-file"}},
	{"DNS", []string{"dns", "dns-*", "cluster-dns", "cluster-domain", "corefile", "resolv-conf"}},
	{"What runs on this machine", []string{"publish-dir", "drain", "drain-time"}},
	{"Health, metrics and logs", []string{
		"agent-bind-address", "healthz-bind-address", "metrics-bind-address", "service-metrics", "endpoint-metrics", "service-bytes", "logging-format",
		"profiling", "verbose", "v",
	}},
	{Other, []string{"*"}},
}

// matches says whether a pattern names a flag of a command.
func matches(pattern, command, flag string) bool {
	if of, name, ok := strings.Cut(pattern, " --"); ok {
		return of == command && name == flag
	}
	if start, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(flag, start)
	}
	return pattern == flag
}

// GroupOf is the title of the group that a flag of a command is shown in.
func GroupOf(command, flag string) string {
	for _, g := range flagGroups {
		for _, pattern := range g.names {
			if matches(pattern, command, flag) {
				return g.title
			}
		}
	}
	return Other
}

// Flags are the flags of a command as its help shows them: few in one list, many
// in groups.
func Flags(c *cobra.Command) string {
	own, count := c.LocalFlags(), 0
	own.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			count++
		}
	})
	if count <= many {
		return "Flags:\n" + trim(own.FlagUsagesWrapped(width))
	}
	groups := map[string]*pflag.FlagSet{}
	own.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		title := GroupOf(c.Name(), f.Name)
		if groups[title] == nil {
			groups[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
		}
		groups[title].AddFlag(f)
	})
	var parts []string
	for _, g := range flagGroups {
		if set := groups[g.title]; set != nil {
			parts = append(parts, fmt.Sprintf("%s:\n%s", g.title, trim(set.FlagUsagesWrapped(width))))
		}
	}
	return strings.Join(parts, "\n\n")
}

func trim(text string) string { return strings.TrimRight(text, "\n ") }
