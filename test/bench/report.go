package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// row is a line of the report: a measure at a size.
type row struct {
	name, what, part, goal, proxy string
	section                       string // to which the goal belongs; "" is the main one
	sizes                         []size // to which goal and proxy belong; nil for all
}

// rows are all, with their goals on two cores and what kube-proxy 1.36 did on
// the same kind of machine.
func rows() []row {
	middle, wide, large := []size{{10000, 5}}, []size{{10000, 10}}, []size{{30000, 3}}
	return []row{
		{name: "start", what: "agent start to everything programmed", part: "start", sizes: middle,
			goal: "1.5 s", proxy: "nftables 13 s, iptables-legacy 3.4-4.0 s, iptables-nft over 300 s"},
		{name: "start", what: "agent start to everything programmed", part: "start", sizes: large,
			goal: "4 s", proxy: "nftables 212 s, iptables-legacy 15 s"},
		{name: "peak", what: "memory of the agent and its children while it starts", part: "start", sizes: middle,
			goal: "110 MB (nftables, ebpf)"},
		{name: "latency", what: "slice written to first connection reaching the new pod, p50 / p99", part: "latency",
			goal: "3 / 15 ms (nftables, ebpf, ipvs)", proxy: "nftables 3.7 / 6.6 s, iptables-legacy 0.8 / 1.4 s"},
		{name: "cpu", what: "CPU per endpoint change, agent and its children", part: "cpu", sizes: wide,
			goal: "1.5 ms", proxy: "nftables 5.3 s, iptables-legacy 1.7 s"},
		{name: "cpu", what: "CPU per endpoint change, agent and its children", part: "cpu", goal: "the same as at 10,000 x 10"},
		{name: "service", what: "new Service (two writes, from sending the first) to first connection, p50 / p99", part: "service",
			goal: "6 ms", proxy: "nftables 8.2 s, iptables-legacy 2.8 s"},
		{name: "rate", what: "100 changes/s: lag p50 / p99, CPU", part: "rate",
			goal: "p99 20 ms, 20 % of a core", proxy: "nftables 6-10 s, 70 %"},
		{name: "memory", what: "resident memory of the agent and its children", part: "memory", sizes: wide,
			goal: "110 MB", proxy: "273 MB (563 with children)"},
		{name: "memory", what: "resident memory of the agent and its children", part: "memory", sizes: large,
			goal: "160 MB", proxy: "425 MB (1080 with children)"},
		{name: "connections", what: "connections/s to the VIPs of all Services", part: "connections",
			goal: "1.0 ebpf (socket), at least 0.95 the others; direct itself not slowed", proxy: "nftables 0.98; iptables-legacy slows direct to a quarter"},
		{name: "creates", what: "Service creates at the embedded API", part: "creates",
			goal: "1,500/s and no slower at 30,000", proxy: "kube-apiserver 95-740/s, falling to 142/s"},
		{name: "floor", what: "iptables-restore of one empty chain by itself: what any change costs at least", part: "floor"},
		{name: "floor rule", what: "the same of a chain with one rule, which nothing leads to", part: "floor"},
		{name: "fan", what: "connections/s to one VIP with 1, 100, 1,000 backends", part: "datapath"},
		{name: "streams", what: "throughput of 4 long connections", part: "datapath"},
		{name: "datagrams", what: "UDP packets of 64 bytes on one flow", part: "datapath"},
		{name: "http", what: "HTTP/1.1 requests, kept alive, for each second of processor time", part: "gateway", section: gatewaySection,
			goal: "native 0.6 of haproxy, haproxy engine 0.95"},
		{name: "handshakes", what: "full TLS 1.3 handshakes (P-256, X25519) for each second of processor time", part: "gateway", section: gatewaySection,
			goal: "native 0.9 of haproxy"},
		{name: "route", what: "route written to first request answered by it, under churn, p50 / p99", part: "gateway", section: gatewaySection, goal: "10 / 30 ms"},
		{name: "endpoint", what: "slice written to first request answered by the new endpoint, under churn, p50 / p99", part: "gateway", section: gatewaySection, goal: "10 / 30 ms"},
		{name: "resident", what: "resident memory of the engine, with as many routes and Services, after churn", part: "gateway", section: gatewaySection, goal: "60 MiB"},
		{name: "soak", what: "endpoint changes as fast as the API takes them", part: "soak", goal: "none differs, memory and files flat"},
	}
}

// results are what has been measured so far.
type results struct {
	mu   sync.Mutex
	list []result
}

type result struct {
	row  string
	size size
	mode string
	text string
}

func (r *results) add(row string, s size, mode, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, result{row, s, mode, text})
}

// The tables stand between these two lines of a document; the rest of it is
// written by people.
const (
	beginMark = "<!-- figures: written by fairway-bench -->"
	endMark   = "<!-- end of figures -->"
)

// marks are the lines around the tables of a section.
func marks(section string) (begin, end string) {
	if section == "" {
		return beginMark, endMark
	}
	return fmt.Sprintf("<!-- figures of %s: written by fairway-bench -->", section), fmt.Sprintf("<!-- end of figures of %s -->", section)
}

// write puts the tables into the document that was asked for.
func (r *results) write(o Options, took time.Duration) error {
	return writeReport(o, func(earlier []byte) []byte { return r.markdown(earlier, o, took) })
}

// writeReport puts tables into the document that was asked for, made of those that
// are there.
func writeReport(o Options, markdown func(earlier []byte) []byte) error {
	if o.Out == "" {
		_, err := o.Stdout.Write(markdown(nil))
		return err
	}
	document, err := os.ReadFile(o.Out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read report: %w", err)
	}
	begin, end := marks(o.Section)
	before, rest, found := bytes.Cut(document, []byte(begin))
	earlier, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		before, earlier, after = append(document, '\n'), nil, []byte("\n")
	}
	text := markdown(earlier)
	document = slices.Concat(before, []byte(begin+"\n\n"), text, []byte("\n"+end), after)
	if err := os.WriteFile(o.Out, document, 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// markdown are the tables with what was measured now in place of what earlier
// ones say of the same mode at the same size; all else stays as it is.
func (r *results) markdown(earlier []byte, o Options, took time.Duration) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Last run: %s; commit %s; %s; %s.\n", machine(), o.Version, time.Now().UTC().Format(time.DateOnly), took.Round(time.Second))
	all := parseTables(earlier)
	for _, row := range rows() {
		for _, s := range r.sizesOf(row) {
			all = merge(all, r.table(row, s, o))
		}
	}
	inOrder(all)
	writeSummary(&b, o.Section, all)
	writeBeside(&b, all)
	for _, t := range all {
		t.write(&b)
	}
	return b.Bytes()
}

// sizesOf are those at which a row was measured.
func (r *results) sizesOf(w row) []size {
	var list []size
	for _, x := range r.list {
		own := func(o row) bool { return o.name == w.name && slices.Contains(o.sizes, x.size) }
		mine := slices.Contains(w.sizes, x.size) || w.sizes == nil && !slices.ContainsFunc(rows(), own)
		if x.row == w.name && !slices.Contains(list, x.size) && (mine || w.sizes != nil && isOdd(w, x.size)) {
			list = append(list, x.size)
		}
	}
	return list
}

// isOdd reports a size that no row names, which the first of its rows shows.
func isOdd(w row, s size) bool {
	var first *row
	for _, o := range rows() {
		if o.name != w.name {
			continue
		}
		if first == nil {
			first = &o
		}
		if slices.Contains(o.sizes, s) || o.sizes == nil {
			return false
		}
	}
	return first.goal == w.goal && slices.Equal(first.sizes, w.sizes)
}

// table is what was measured of a row at a size.
func (r *results) table(w row, s size, o Options) table {
	t := table{title: w.what + ", " + s.String(),
		command: fmt.Sprintf("fairway-bench --only %s --services %d --endpoints %d", w.part, s.services, s.endpoints)}
	if w.part == "gateway" {
		t.command = fmt.Sprintf("fairway-bench gateway --routes %d", s.services)
	}
	// Goals are for two cores, not for those of another section.
	if o.Section == w.section && (len(w.sizes) == 0 || slices.Contains(w.sizes, s)) {
		if w.goal != "" {
			t.goal = "Goal: " + w.goal + "."
		}
		if w.proxy != "" {
			t.goal += " kube-proxy 1.36: " + strings.Replace(w.proxy, "kube-apiserver", "(kube-apiserver)", 1) + "."
		}
	}
	for _, x := range r.list {
		if x.row == w.name && x.size == s {
			t.figures = append(t.figures, figure{x.mode, x.text, o.Version, time.Now().UTC().Format(time.DateOnly)})
		}
	}
	return t
}

// machine says what this was measured on.
func machine() string {
	model := "unknown processor"
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(data)) {
			if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	release := "unknown"
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		release = unix.ByteSliceToString(name.Release[:])
	}
	return fmt.Sprintf("%d cores of %s, Linux %s, %s", runtime.NumCPU(), model, release, runtime.Version())
}
