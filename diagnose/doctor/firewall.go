package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// owner is whose firewall a chain is, as far as names tell; "" if they don't.
func (c Chain) owner() string {
	for _, f := range firewalls {
		if strings.HasPrefix(c.Table, f.prefix) || strings.HasPrefix(c.Name, f.prefix) {
			return f.owner
		}
	}
	return ""
}

// ways to let pods' packets be forwarded, by the owner of a firewall.
var ways = map[string]string{
	"firewalld": "firewall-cmd --permanent --zone=trusted --add-source=%s && firewall-cmd --reload",
	"ufw":       "ufw route allow from %[1]s && ufw route allow to %[1]s",
	"Docker":    "iptables -I DOCKER-USER -s %[1]s -j ACCEPT && iptables -I DOCKER-USER -d %[1]s -j ACCEPT",
}

// letThrough are the commands that have the firewalls of some chains forward pods' packets: those
// of the programs that made the chains, which would undo others.
func (e *Evidence) letThrough(chains []Chain) string {
	var list []string
	ranges, more := e.podRanges()
	for _, c := range chains {
		for _, pods := range ranges {
			if command := c.letThrough(pods); !slices.Contains(list, command) {
				list = append(list, command)
			}
		}
	}
	if more {
		list = append(list, "and the same for the other nodes' pod ranges")
	}
	return strings.Join(list, "; ")
}

func (c Chain) letThrough(pods string) string {
	six := strings.Contains(pods, ":")
	if way, known := ways[c.owner()]; known {
		command := fmt.Sprintf(way, pods)
		if six {
			command = strings.ReplaceAll(command, "iptables ", "ip6tables ")
		}
		return command
	}
	tool, family := "iptables", "ip"
	if six {
		tool, family = "ip6tables", "ip6"
	}
	switch {
	case c.Legacy:
		return fmt.Sprintf("%s-legacy -I %s -s %s -j ACCEPT && %s-legacy -I %s -d %s -j ACCEPT", tool, c.Name, pods, tool, c.Name, pods)
	case c.iptables() && strings.ToUpper(c.Name) == c.Name:
		return fmt.Sprintf("%s -I %s -s %s -j ACCEPT && %s -I %s -d %s -j ACCEPT", tool, c.Name, pods, tool, c.Name, pods)
	}
	where := c.Family + " " + c.Table + " " + c.Name
	return fmt.Sprintf("nft insert rule %s %s saddr %s accept && nft insert rule %s %s daddr %s accept", where, family, pods, where, family, pods)
}

// podRanges are one of each address family, and whether there are more; a word in their place
// if none is known.
func (e *Evidence) podRanges() (list []string, more bool) {
	if e.Objects == nil {
		return []string{"POD-RANGE"}, false
	}
	has := map[bool]bool{}
	for _, n := range e.Objects.Nodes {
		for _, one := range n.Spec.PodCIDRs {
			if six := strings.Contains(one, ":"); has[six] {
				more = true
			} else {
				has[six] = true
				list = append(list, one)
			}
		}
	}
	if len(list) == 0 {
		return []string{"POD-RANGE"}, false
	}
	return list, more
}
