package ebpf

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
)

// laps are how long the exchanges of each way took.
type laps map[string][]time.Duration

// measure times an exchange.
func (l laps) measure(way string, exchange func() error) error {
	began := time.Now()
	err := exchange()
	l[way] = append(l[way], time.Since(began))
	if err != nil {
		return fmt.Errorf("%s: %w", way, err)
	}
	return nil
}

// report says what each way took, and what that is of direct.
func (l laps) report(b *testing.B) {
	b.Helper()
	median := func(way string) float64 {
		list := slices.Sorted(slices.Values(l[way]))
		return float64(list[len(list)/2])
	}
	b.ReportMetric(0, "ns/op") // of all ways together, and what prepares them
	for way := range l {
		b.ReportMetric(median(way), way+"-ns")
		if way != direct {
			b.ReportMetric(median(way)/median(direct), way+"/direct")
		}
	}
}

// reportPrograms says what time programs took for an exchange of each way, by
// their hooks.
func (s *site) reportPrograms(b *testing.B, exchange func(way string) error) {
	b.Helper()
	off, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	check(b, err)
	defer func() { check(b, off.Close()) }()
	const times = 1000
	for _, way := range []string{direct, oneVIP, allVIPs, byTC} {
		var lines []string
		all := time.Duration(0)
		before := s.programStats(b)
		for range times {
			check(b, exchange(way))
		}
		for name, now := range s.programStats(b) {
			runs, took := now.RunCount-before[name].RunCount, now.Runtime-before[name].Runtime
			if runs > 0 {
				lines = append(lines, fmt.Sprintf("%s %.1f x %d ns", name, float64(runs)/times, int(took)/int(runs)))
			}
			all += took
		}
		slices.Sort(lines)
		b.Logf("%s: programs %d ns: %s", way, int(all)/times, strings.Join(lines, ", "))
	}
}

// programStats is what the kernel says of each program of the plane's.
func (s *site) programStats(b *testing.B) map[string]*ebpf.ProgramStats {
	b.Helper()
	stats := map[string]*ebpf.ProgramStats{}
	add := func(pin string, program *ebpf.Program, err error) {
		check(b, err)
		name, _, _ := strings.Cut(filepath.Base(pin), "-")
		stats[name], err = program.Stats()
		check(b, errors.Join(err, program.Close()))
	}
	found, err := filepath.Glob(filepath.Join(s.plane.dir, "*-*"))
	check(b, err)
	for _, pin := range found {
		info, err := pins.LinkInfo(pin)
		check(b, err)
		program, err := ebpf.NewProgramFromID(info.Program)
		add("socket "+filepath.Base(pin), program, err)
	}
	found, err = filepath.Glob(filepath.Join(s.plane.dir, "programs", "*", "*"))
	check(b, err)
	for _, pin := range found {
		program, err := ebpf.LoadPinnedProgram(pin, nil)
		add(pin, program, err)
	}
	return stats
}
