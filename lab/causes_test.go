package lab_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/nftables"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
)

// TestCauses: doctor names the most frequent causes, each provoked in a lab, and
// finds nothing where all is well.
func TestCauses(t *testing.T) { causesIn(t, "nftables", false) }

func causesIn(t *testing.T, mode string, onNodes bool) {
	c := config("causes")
	c.Mode = mode
	up(t, c)
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), hello(2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := fairway("kubectl", "--kubeconfig", lab.Kubeconfig(c.Name), "apply", "-f", filepath.Join("testdata", "causes.yaml")); code != 0 {
		t.Fatalf("apply: %s%s", out, stderr)
	}
	d := doctored{t, lab.Kubeconfig(c.Name)}
	node1, err := netns.Open(topology.HostNamespace(c.Name, "node1"))
	if err != nil {
		t.Fatal(err)
	}
	defer node1.Close() //nolint:errcheck // of a test

	d.finds("", "svc/healthy")
	showsFlows(t, client, lab.Kubeconfig(c.Name), node1)
	withoutAPI(t, client, c.Name)
	for _, cause := range []struct{ code, question string }{
		{"FW101", "svc/selector"},
		{"FW102", "svc/unready"},
		{"FW102", "svc/unready6"},
		{"FW103", "svc/deaf"},
		{"FW104", "svc/named"},
		{"FW106", "svc/spoken"},
		{"FW107", "svc/misfit"},
		{"FW108", "svc/healthy:81"},
		{"FW109", "svc/healty"},
		{"FW113", "svc/inner --from node/node1"},
		{"FW114", "svc/outer --from 198.51.100.9 --node node1"},
		{"FW116", "svc/pending"},
	} {
		d.finds(cause.code, cause.question)
	}
	forwarding(t, node1, "0")
	d.finds("FW123", "svc/healthy --node node1")
	forwarding(t, node1, "1")
	remove := dropForwarded(t, node1)
	d.finds("FW117", "svc/healthy --node node1")
	remove()
	d.finds("", "svc/healthy")
	if onNodes { // they take half a minute
		causesOnNodes(t, d, client, c, node1)
	}
}

// doctored asks doctor about a cluster.
type doctored struct {
	*testing.T
	kubeconfig string
}

// finds waits until the first problem that doctor names has a code; "" is none.
func (d doctored) finds(code, question string) {
	d.Helper()
	args := append([]string{"doctor", "--kubeconfig", d.kubeconfig, "-o", "json"}, strings.Fields(question)...)
	var got, out, stderr string
	var exit int
	defer func() {
		if d.Failed() {
			d.Logf("doctor %s: code %q, exit code %d, want %q:\n%s%s", question, got, exit, code, out, stderr)
		}
	}()
	eventually(d.T, "doctor "+question+" finds "+code, func() bool {
		out, stderr, exit = fairway(args...)
		got = firstProblem(out)
		if code == "" {
			return exit == 0
		}
		return got == code && exit == 1
	})
}

// firstProblem is the code of the first finding that is no note.
func firstProblem(report string) string {
	var r struct {
		Results []struct {
			Findings []struct{ Code, Grade string }
		}
	}
	if json.Unmarshal([]byte(report), &r) != nil {
		return "no report"
	}
	for _, result := range r.Results {
		for _, f := range result.Findings {
			if f.Grade != "note" {
				return f.Code
			}
		}
	}
	return ""
}

// forwarding switches a node's forwarding of IPv4 packets.
func forwarding(t *testing.T, node *netns.NS, value string) {
	t.Helper()
	if err := node.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte(value), 0) }); err != nil {
		t.Fatal(err)
	}
}

// dropForwarded is a firewall that drops forwarded packets by its policy.
func dropForwarded(t *testing.T, node *netns.NS) (remove func()) {
	t.Helper()
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: "firewall"}
	change := func(what func(*nftables.Conn)) {
		t.Helper()
		if err := node.Do(func() error {
			conn, err := nftables.New()
			if err != nil {
				return err
			}
			what(conn)
			return conn.Flush()
		}); err != nil {
			t.Fatal(err)
		}
	}
	change(func(conn *nftables.Conn) {
		conn.AddTable(table)
		drop := nftables.ChainPolicyDrop
		conn.AddChain(&nftables.Chain{
			Table: table, Name: "forward", Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop,
		})
	})
	return func() { change(func(conn *nftables.Conn) { conn.DelTable(table) }) }
}
