package realcluster

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// perClient is how many connections each of the loading clients begins a second.
const perClient = 100

// target is what a client asks while something is done to the cluster.
type target struct {
	client *Client
	to     string
}

// targets are pods, a host-network pod and a node itself, which ask the cluster IPs of what
// is rolled out, in turns of both families, and a client outside, which asks a node port.
func (c *Cluster) targets() (list []target, err error) {
	rolling, err := c.serviceAddresses("rolling")
	if err != nil {
		return nil, err
	}
	for i, client := range c.Clients {
		switch client.Name {
		case "client-" + c.Nodes[0].Name, "client-host", "node":
			list = append(list, target{client, netip.AddrPortFrom(rolling[i%2], 80).String()})
		case "outside":
			list = append(list, target{client, netip.AddrPortFrom(c.Nodes[0].IPv4(), 30080).String()})
		}
	}
	return list, nil
}

// Report is what became of connections while something was done.
type Report struct {
	What   string
	Took   time.Duration
	Counts map[string]Counts // by client
}

// UnderLoad does something while clients begin connections, and a second before and after.
func (c *Cluster) UnderLoad(what string, do func() error) (Report, error) {
	r := Report{What: what, Counts: map[string]Counts{}}
	targets, err := c.targets()
	if err != nil {
		return r, err
	}
	for _, t := range targets {
		if err := t.client.Load(t.to, perClient); err != nil {
			return r, err
		}
	}
	time.Sleep(time.Second) // so that kept connections are there, and counted
	began := time.Now()
	err = do()
	r.Took = time.Since(began)
	time.Sleep(time.Second) // what comes late is counted, too
	for _, t := range targets {
		counts, late := t.client.Loaded()
		r.Counts[t.client.Name] = counts
		err = errors.Join(err, late)
	}
	return r, err
}

// Lost is how many new connections failed, and how many that were kept broke.
func (r Report) Lost() (failed, broken int) {
	for _, c := range r.Counts {
		failed += sum(c.Failed)
		broken += sum(c.Broken)
	}
	return failed, broken
}

// String is a line, and one for each client that lost something.
func (r Report) String() string {
	var all int
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		c := r.Counts[name]
		all += c.New
		if len(c.Samples) > 0 {
			lines = append(lines, fmt.Sprintf("\n  %s: %s: %s", name, c, strings.Join(c.Samples, "; ")))
		}
	}
	failed, broken := r.Lost()
	return fmt.Sprintf("%s (%.0f s): %d of %d new connections failed, %d kept ones broke%s", r.What, r.Took.Seconds(), failed, all, broken, strings.Join(lines, ""))
}
