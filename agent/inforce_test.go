package agent

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// logBuffer is what several goroutines log.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestWhatAgentsSay: one line when Services are in force, and who and what the
// agent is at its metrics address.
func TestWhatAgentsSay(t *testing.T) {
	r := newRig(t)
	r.service("web", 1, "")
	r.apply(`{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"default","name":"empty"},"spec":{"clusterIP":"10.96.0.9","clusterIPs":["10.96.0.9"],"ports":[{"port":80,"protocol":"TCP"}]}}`)
	r.node(firstAddress, "")
	var log logBuffer
	r.config.Log, r.config.ZPages.Version = slog.New(slog.NewTextHandler(&log, nil)), "1f00ba7-dirty"
	r.start()
	r.eventually("in force is said", func() bool {
		return strings.Contains(log.String(), `msg="Services are in force" services=2 endpoints=1 mode=nftables took=`)
	})
	for _, line := range []string{
		"fairway_services 2", "fairway_services_without_endpoints 1", `fairway_mode{mode="nftables"} 1`, "fairway_api_away_seconds 0",
		`fairway_config_reloads_total{result="invalid"} 0`, "fairway_left_out 0", "fairway_programming_failures_total 0",
	} {
		r.eventually(line, metric(line))
	}
	_, text := get(metricsAddress, "/metrics")
	if !strings.Contains(text, `fairway_build_info{goversion="go`) || !strings.Contains(text, `version="1f00ba7-dirty"} 1`) {
		t.Error("no fairway_build_info")
	}
	missing := queried(t)
	for _, name := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(text, -1) {
		for _, suffix := range []string{"", "_bucket"} {
			delete(missing, name[1]+suffix)
		}
	}
	// Those of some modes alone, which TestPlaneMetrics shows.
	for _, name := range []string{"fairway_map_entries", "fairway_map_limit", "fairway_dropped_packets_total"} {
		delete(missing, name)
	}
	if len(missing) > 0 {
		t.Errorf("alerts or the dashboard ask for metrics that aren't there: %v", slices.Sorted(maps.Keys(missing)))
	}
	_, page := get(metricsAddress, "/")
	for _, part := range []string{"agent on here", "1f00ba7-dirty, mode nftables", `href="/metrics"`, `href="/announce"`} {
		if !strings.Contains(page, part) {
			t.Errorf("the index page lacks %s:\n%s", part, page)
		}
	}
	if code, _ := get(metricsAddress, "/no-such-page"); code != 404 {
		t.Errorf("a page that isn't there answers %d", code)
	}
	if page := structured(t, "/statusz", "Statusz"); !strings.Contains(page, "1f00ba7") {
		t.Errorf("/statusz lacks the version: %s", page)
	}
}

// queried are the metrics that deploy/monitoring asks for.
func queried(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, file := range []string{"dashboard.json", "prometheusrule.yaml"} {
		text, err := os.ReadFile("../deploy/monitoring/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\b(fairway|kubeproxy|process)_[a-z_]+\b`).FindAllString(string(text), -1) {
			names[name] = true
		}
	}
	return names
}
