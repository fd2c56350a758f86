package conformance

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/vm"
)

// cases are the files that a pattern matches.
func cases(t *testing.T, pattern string) []*Case {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("find cases: %d, %v", len(paths), err)
	}
	var all []*Case
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c, err := ParseCase(strings.TrimSuffix(filepath.Base(path), ".txtar"), data)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

const (
	everyCase  = "testdata/cases/*.txtar"
	switchCase = "testdata/switch.txtar"
)

// TestSpecification holds what the cases expect against model.Decide.
func TestSpecification(t *testing.T) {
	for _, c := range append(cases(t, everyCase), cases(t, switchCase)...) {
		t.Run(c.Name, func(t *testing.T) {
			if err := Specify(c); err != nil {
				t.Error(err)
			}
		})
	}
}

// kernelNeeds are the kernel features without which a plane can't be made.
// Planes run in the virtual machine if the kernel at hand lacks them.
var kernelNeeds = map[string][]string{"ipvs": {"ip_vs", "dummy"}}

// TestPlanes plays every case with every plane; those about SCTP are left to
// TestSCTP.
func TestPlanes(t *testing.T) {
	playAll(t, false)
}

// TestLegacy plays every case with the legacy variant of iptables, whichever
// TestPlanes has found.
func TestLegacy(t *testing.T) {
	t.Setenv(VariantEnv, string(iptables.Legacy))
	playKind(t, "iptables", false)
}

// TestSCTP plays the cases about SCTP with every plane.
func TestSCTP(t *testing.T) {
	playAll(t, true, "sctp")
}

func playAll(t *testing.T, sctp bool, features ...string) {
	for _, kind := range dataplane.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			vm.With(t, func(t *testing.T) { playKind(t, kind.Name, sctp) }, append(slices.Clone(features), kernelNeeds[kind.Name]...)...)
		})
	}
}

func playKind(t *testing.T, kind string, sctp bool) {
	stage := newTheatre(t)
	for _, c := range cases(t, everyCase) {
		if c.SCTP() == sctp {
			t.Run(c.Name, func(t *testing.T) { play(t, stage, kind, "", c) })
		}
	}
}

// TestSwitch changes every plane for every other one.
func TestSwitch(t *testing.T) {
	c := cases(t, switchCase)[0]
	for _, from := range dataplane.Kinds() {
		for _, to := range dataplane.Kinds() {
			if from.Name == to.Name {
				continue
			}
			t.Run(from.Name+"-to-"+to.Name, func(t *testing.T) {
				vm.With(t, func(t *testing.T) {
					play(t, newTheatre(t), from.Name, to.Name, c)
				}, append(slices.Clone(kernelNeeds[from.Name]), kernelNeeds[to.Name]...)...)
			})
		}
	}
}

// theatre has a stage that is replaced when a case has left something on it.
type theatre struct{ stage *Stage }

func newTheatre(t *testing.T) *theatre {
	t.Helper()
	th := &theatre{}
	th.renew(t)
	t.Cleanup(func() {
		if err := th.stage.Close(); err != nil {
			t.Error(err)
		}
	})
	return th
}

func (th *theatre) renew(t *testing.T) {
	t.Helper()
	if th.stage != nil {
		if err := th.stage.Close(); err != nil {
			t.Error(err)
		}
	}
	stage, err := NewStage()
	if err != nil {
		t.Fatal(err)
	}
	th.stage = stage
}

func play(t *testing.T, th *theatre, kind, other string, c *Case) {
	if err := th.stage.Begin(); err != nil {
		t.Fatal(err)
	}
	stateDir := t.TempDir()
	run, err := Play(c, th.stage, kind, other, stateDir)
	var missing *MissingError
	if errors.As(err, &missing) {
		t.Fatal(err)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, run.Diagnosis())
	}
	for _, e := range run.Exceptions {
		t.Log("EXCEPTION: " + e)
	}
	if err := run.Finish(); err != nil {
		t.Error(err)
	}
	if err := th.stage.Left(stateDir); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		th.renew(t)
	}
}
