package bench

import (
	"fmt"
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

// TestSectionsApart: another kind of machine has tables of its own, without goals,
// which nobody else's run touches; kube-proxy's figures stand beside ours.
func TestSectionsApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "performance.md")
	write := func(o Options, mode, text string) {
		t.Helper()
		r := &results{}
		r.add("start", size{10000, 5}, mode, text)
		o.Out, o.Version = path, "v1"
		if err := r.write(o, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	write(Options{}, "nftables", "1.0 s")
	write(Options{Section: "machine"}, "ipvs", "60 s")
	write(Options{Section: "machine"}, "nftables", "50 s")
	write(Options{}, proxyName+"nftables", "13 s")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	main, section, found := strings.Cut(string(data), endMark)
	if !found {
		t.Fatalf("the tables have no end:\n%s", data)
	}
	for _, c := range []struct{ text, want string }{
		{main, "Goal: 1.5 s."},
		{main, "### " + besideTitle + "\n\n| what | nftables | kube-proxy nftables |\n|---|---|---|\n| agent start to everything programmed, 10000 x 5 | 1.0 s | 13 s |"},
		{section, "### " + sectionTitle + "\n\n| what | nftables | ipvs |\n|---|---|---|\n| agent start to everything programmed, 10000 x 5 | 50 s | 60 s |"},
		{section, "<!-- end of figures of machine -->"},
	} {
		if strings.Count(c.text, c.want) != 1 {
			t.Errorf("%q is there %d times in\n%s", c.want, strings.Count(c.text, c.want), c.text)
		}
	}
	if strings.Contains(section, "Goal") || strings.Contains(main, "60 s") || strings.Contains(section, besideTitle) {
		t.Errorf("the sections are mixed up:\n%s", data)
	}
}

// TestWholeRun: the soak, which takes as long as all the rest, is only for those
// who ask for it; kube-proxy comes beside each of its modes and is spared what
// only ours can be asked.
func TestWholeRun(t *testing.T) {
	o := Options{Log: slog.New(slog.DiscardHandler), KubeProxy: "kube-proxy", Modes: []string{"nftables", "ebpf"}}
	plan, err := newPlan(&o)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range plan {
		if s.has("soak") {
			t.Errorf("%s is soaked", s.size)
		}
		var names []string
		for _, m := range s.modes {
			names = append(names, m.name)
		}
		if got := strings.Join(names, ", "); got != "nftables, kube-proxy nftables, ebpf" {
			t.Errorf("%s is measured with %s", s.size, got)
		}
	}
	o.Only = []string{"soak"}
	if plan, err = newPlan(&o); err != nil || len(plan) != 1 || !plan[0].has("soak") {
		t.Errorf("asked for the soak: %+v, %v", plan, err)
	}
}

// TestOnlyOne: two runs at a time would take each other's networks away.
func TestOnlyOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release, err := onlyOne(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := onlyOne(path); err == nil || !strings.Contains(err.Error(), "another benchmark is running") {
		t.Errorf("a second run: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if release, err = onlyOne(path); err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
}

// TestKubeProxySays reads when it had programmed everything, once it has.
func TestKubeProxySays(t *testing.T) {
	const line = "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family=\"IPv%d\"} %s\n"
	text := "# HELP x\n" + fmt.Sprintf(line, 4, "1.7637490012345e+09")
	if _, err := lastSync(strings.NewReader(text + fmt.Sprintf(line, 6, "0"))); err == nil {
		t.Error("one family was taken for both")
	}
	at, err := lastSync(strings.NewReader(text + fmt.Sprintf(line, 6, "1.763749e+09")))
	if want := time.UnixMicro(1763749001234500); err != nil || !at.Equal(want) {
		t.Errorf("programmed at %s, want %s: %v", at, want, err)
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
