package bench

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReportKeepsWhatOthersWrote: prose around the tables stays, and so do the
// tables of what was not measured this time.
func TestReportKeepsWhatOthersWrote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "performance.md")
	if err := os.WriteFile(path, []byte("before\n"+beginMark+"\n"+endMark+"\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	write := func(version, row, mode, text string) {
		t.Helper()
		r := &results{}
		r.add(row, size{10000, 5}, mode, text)
		if err := r.write(Options{Out: path, Version: version}, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	write("v1", "start", "nftables", "1.0 s")
	write("v1", "start", "ebpf", "2.0 s")
	write("v1", "latency", "nftables", "3 ms")
	write("v2", "start", "nftables", "0.9 s")
	today := time.Now().UTC().Format(time.DateOnly)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := string(data)
	for _, want := range []string{"before\n", "\nafter\n",
		"| nftables | 0.9 s | v2 | " + today + " |\n| ebpf | 2.0 s | v1 | " + today + " |\n",
		"| nftables | 3 ms | v1 | " + today + " |\n", "Goal: 1.5 s.",
		"| agent start to everything programmed, 10000 x 5 | 1.5 s | 0.9 s | 2.0 s |"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is there %d times in\n%s", want, strings.Count(got, want), got)
		}
	}
	if strings.Contains(got, "1.0 s |") {
		t.Errorf("the old figure is still there:\n%s", got)
	}
}

// TestPlanGrows: the API is only ever added to, so sizes come in order.
func TestPlanGrows(t *testing.T) {
	plan, err := newPlan(&Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(plan); i++ {
		if plan[i].size.services < plan[i-1].size.services {
			t.Errorf("%s comes after %s", plan[i].size, plan[i-1].size)
		}
	}
	for _, bad := range []Options{{Only: []string{"speed"}}, {Services: 10}, {Modes: []string{"magic"}}} {
		bad.Log = slog.New(slog.DiscardHandler)
		if _, err := newPlan(&bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}
