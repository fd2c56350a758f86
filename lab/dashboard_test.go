//go:build dashboard

package lab_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/internal/netns"
)

// noData are the panels of the dashboard that have nothing to show in a mode, with the reason.
var noData = map[string]map[string]string{
	"nftables": {
		"Maps of the eBPF programs": "there are none",
		"Dropped":                   "netfilter's rules count what they refuse, not what the kernel drops",
	},
	"ebpf": {},
}

// TestDashboard: with a Prometheus that scrapes an agent whose Services are used, refused and
// changed, each query of the Grafana dashboard yields numbers, or is known to have none.
func TestDashboard(t *testing.T) {
	for mode, none := range noData {
		t.Run(mode, func(t *testing.T) {
			l := traceIn(t, mode)
			p := l.prometheus()
			used := l.used()
			for _, q := range queries(t) {
				if reason, ok := none[q.panel]; ok {
					t.Logf("%s: nothing: %s", q.panel, reason)
					continue
				}
				eventually(t, fmt.Sprintf("%s: %s has a number", q.panel, q.expr), func() bool {
					used()
					return p.yields(q.expr)
				})
			}
		})
	}
}

// query is one of the dashboard's, of the job and node that are scraped here.
type query struct{ panel, expr string }

func queries(t *testing.T) (list []query) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "deploy", "monitoring", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("$__rate_interval", "10s", "$job", "fairway", "$instance", ".*")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			list = append(list, query{p.Title, here.Replace(target.Expr)})
		}
	}
	if len(list) == 0 {
		t.Fatal("the dashboard has no queries")
	}
	return list
}

// prometheus is a Prometheus that scrapes the agent of node1.
type prometheus struct {
	*testing.T
	client *http.Client
}

func (l *tracing) prometheus() prometheus {
	l.Helper()
	dir := l.TempDir()
	config := "global: {scrape_interval: 1s}\nscrape_configs: [{job_name: fairway, static_configs: [{targets: ['127.0.0.1:10249']}]}]\n"
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		l.Fatal(err)
	}
	c := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:9090")
	var said strings.Builder
	c.Stderr = &said
	if err := l.node1.Start(c); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
		if l.Failed() {
			l.Log(said.String())
		}
	})
	return prometheus{l.T, &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: dialIn(l.node1)}}}
}

// dialIn connects from a network namespace.
func dialIn(ns *netns.NS) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = ns.Do(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
}

// yields reports whether a query has a number as its answer.
func (p prometheus) yields(expr string) bool {
	p.Helper()
	response, err := p.client.Get("http://127.0.0.1:9090/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return false // it has just been started
	}
	defer response.Body.Close() //nolint:errcheck // of a test
	var answer struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Status == "error" {
		p.Fatalf("%s: %v %s", expr, err, answer.Error)
	}
	return slices.ContainsFunc(answer.Data.Result, func(r struct{ Value [2]any }) bool { return r.Value[1] != "NaN" })
}

// used has a pod connect to a Service that answers, and to one that refuses, and Services
// change.
func (l *tracing) used() func() {
	l.Helper()
	healthy, refusing := l.services[0], l.service("unready")
	times := 0
	return func() {
		for _, to := range []netip.Addr{healthy, refusing} {
			_ = l.podNS.Do(func() error { // what becomes of it is the metrics' to say
				conn, err := net.DialTimeout("tcp", target(to), time.Second)
				if err != nil {
					return err
				}
				return conn.Close()
			})
		}
		if times++; times%10 == 1 {
			replicas := fmt.Sprintf("--replicas=%d", 3+times/10%2)
			if out, stderr, code := fairway("kubectl", "--kubeconfig", l.kubeconfig, "scale", "deployment", "hello", replicas); code != 0 {
				l.Fatalf("scale: %s%s", out, stderr)
			}
		}
		time.Sleep(100 * time.Millisecond) // a load that changes
	}
}
