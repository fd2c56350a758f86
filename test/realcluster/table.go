package realcluster

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Question is one that a client asks a Service.
type Question struct {
	Service string // or what else is asked
	Way     Way
	Client  *Client
	To      string
	Times   int
	Who     bool // which of the servers answers matters
}

// String names the question in tables.
func (q Question) String() string {
	host, _, err := net.SplitHostPort(q.To)
	family := ""
	if addr, parsed := netip.ParseAddr(host); err == nil && parsed == nil {
		family = map[bool]string{true: " IPv4", false: " IPv6"}[addr.Is4()]
	}
	return fmt.Sprintf("%s by %s%s from %s", q.Service, q.Way, family, q.Client.Name)
}

// Questions are what is compared with kube-proxy.
func (c *Cluster) Questions() (list []Question, err error) {
	addresses := map[string][]netip.Addr{}
	for _, name := range []string{"web", "affinity", "empty", "self", "inside", "local"} {
		if addresses[name], err = c.serviceAddresses(name); err != nil {
			return nil, err
		}
	}
	for _, client := range c.Clients {
		ask := func(service string, way Way, to string, times int, who bool) {
			list = append(list, Question{service, way, client, to, times, who})
		}
		for family := range 2 {
			at := func(address netip.Addr, port int) string {
				return netip.AddrPortFrom(address, uint16(port)).String()
			}
			for _, n := range c.Nodes[:2] {
				ask("node port of "+n.Name, TCP, at(n.Addresses[family], 30080), 12, false)
				ask("Local node port of "+n.Name, TCP, at(n.Addresses[family], 30081), 2, true)
				ask("health check of "+n.Name, Code, at(n.Addresses[family], 30500), 1, true)
			}
			ask("node port of "+c.Nodes[0].Name, UDP, at(c.Nodes[0].Addresses[family], 30080), 12, false)
			ask("host port", TCP, at(c.Nodes[1].Addresses[family], hostPort), 2, true)
			ask("load balancer's address", TCP, at(c.balanced()[family], 80), 2, true)
			if client.Name == "outside" {
				continue // it has no way to cluster IPs
			}
			ask("cluster IP", TCP, at(addresses["web"][family], 80), 12, false)
			ask("cluster IP", UDP, at(addresses["web"][family], 80), 12, false)
			ask("cluster IP", Body, at(addresses["web"][family], 81), 2, false)
			ask("affinity", TCP, at(addresses["affinity"][family], 80), 12, false)
			ask("no endpoints", TCP, at(addresses["empty"][family], 80), 1, false)
			ask("unserved port", TCP, at(addresses["web"][family], 99), 1, false)
			ask("internal Local", TCP, at(addresses["inside"][family], 80), 8, true)
			ask("one pod (hairpin from itself)", TCP, at(addresses["self"][family], 80), 2, true)
		}
		if strings.HasPrefix(client.Name, "client-node") {
			ask("name web", Name, "web", 1, true)
			ask("name web.real.svc.cluster.local", Name, "web.real.svc.cluster.local", 1, true)
			ask("name of nothing", Name, "nothing.real.svc.cluster.local", 1, true)
		}
	}
	return list, nil
}

// Answers are what the questions' clients got, by the question's name.
type Answers map[string]string

// AskAll asks all questions, each client its own beside the others.
func (c *Cluster) AskAll(questions []Question) (Answers, error) {
	all := make([]Answers, len(c.Clients))
	var asking errgroup.Group
	for i, client := range c.Clients {
		asking.Go(func() (err error) {
			all[i], err = c.ask(slices.DeleteFunc(slices.Clone(questions), func(q Question) bool { return q.Client != client }))
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		return nil, err
	}
	answers := Answers{}
	for _, a := range all {
		maps.Copy(answers, a)
	}
	return answers, nil
}

// ask asks one question after the other.
func (c *Cluster) ask(questions []Question) (Answers, error) {
	answers := Answers{}
	for _, q := range questions {
		seen, servers := map[string]bool{}, map[string]bool{}
		for range q.Times {
			a, err := q.Client.Ask(q.Way, q.To)
			if err != nil {
				return nil, err
			}
			if a.Failed != "" {
				seen[a.Failed] = true
				if a.Failed == "timeout" {
					break
				}
				continue
			}
			servers[a.Server] = true
			seen[c.describe(q, a)] = true
		}
		text := strings.Join(slices.Sorted(maps.Keys(seen)), ", or ")
		if q.Service == "affinity" && len(servers) > 0 {
			text = fmt.Sprintf("%d endpoint", len(servers))
		}
		answers[q.String()] = text
	}
	return answers, nil
}

// describe says an answer without what differs by chance.
func (c *Cluster) describe(q Question, a Answer) string {
	server := a.Server
	if !q.Who {
		server, _, _ = strings.Cut(server, "@")
	}
	if a.Client == "" {
		return server
	}
	return server + " sees " + c.whose(q.Client, a.Client)
}

// whose says whose address a server saw.
func (c *Cluster) whose(client *Client, seen string) string {
	address, err := netip.ParseAddr(seen)
	if err != nil {
		return seen
	}
	if slices.Contains(client.addresses, address) {
		return "the client"
	}
	for _, n := range c.Nodes {
		gateway := slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Addr().Next() == address })
		if !slices.Contains(n.Addresses, address) && !gateway {
			continue
		}
		if n == client.node {
			return "its node"
		}
		return "a node"
	}
	return seen
}

// Settled asks until the answers are accepted, or time is up.
func (c *Cluster) Settled(questions []Question, accepted func(Question, string) bool) (Answers, error) {
	got := Answers{}
	for deadline := time.Now().Add(waitTimeout); ; {
		again := slices.DeleteFunc(slices.Clone(questions), func(q Question) bool {
			answer, asked := got[q.String()]
			return asked && accepted(q, answer)
		})
		if len(again) == 0 || time.Now().After(deadline) {
			return got, nil
		}
		better, err := c.AskAll(again)
		if err != nil {
			return got, err
		}
		maps.Copy(got, better)
	}
}
