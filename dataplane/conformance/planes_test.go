package conformance_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/dataplane/conformance"
	"github.com/fairway-net/fairway/internal/vm"
)

func cases(t *testing.T) []*conformance.Case {
	t.Helper()
	paths, err := filepath.Glob("testdata/cases/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("find cases: %d, %v", len(paths), err)
	}
	var all []*conformance.Case
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c, err := conformance.ParseCase(strings.TrimSuffix(filepath.Base(path), ".txtar"), data)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// TestSpecification holds what the cases expect against model.Decide.
func TestSpecification(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.Name, func(t *testing.T) {
			if err := conformance.Specify(c); err != nil {
				t.Error(err)
			}
		})
	}
}

// kernelNeeds are the kernel features without which a plane can't be made.
// Planes run in the virtual machine if the kernel at hand lacks them.
var kernelNeeds = map[string][]string{"ipvs": {"ip_vs", "dummy"}}

// TestPlanes plays every case with every plane; those about SCTP are left to
// TestPlanesSCTP.
func TestPlanes(t *testing.T) {
	playAll(t, false)
}

// TestPlanesSCTP plays the cases about SCTP with every plane.
func TestPlanesSCTP(t *testing.T) {
	playAll(t, true, "sctp")
}

func playAll(t *testing.T, sctp bool, features ...string) {
	for _, kind := range dataplane.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			vm.With(t, func(t *testing.T) {
				stage := newStage(t)
				for _, c := range cases(t) {
					if c.SCTP() == sctp {
						t.Run(c.Name, func(t *testing.T) { play(t, stage, kind.Name, c) })
					}
				}
			}, append(features, kernelNeeds[kind.Name]...)...)
		})
	}
}

// theatre has a stage that is replaced when a case has left something on it.
type theatre struct{ stage *conformance.Stage }

func newStage(t *testing.T) *theatre {
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
	stage, err := conformance.NewStage()
	if err != nil {
		t.Fatal(err)
	}
	th.stage = stage
}

func play(t *testing.T, th *theatre, kind string, c *conformance.Case) {
	before, err := th.stage.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	stateDir := t.TempDir()
	run, err := conformance.Play(c, th.stage, kind, stateDir)
	var missing *conformance.MissingError
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
	if err := th.stage.Left(before, stateDir); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		th.renew(t)
	}
}
