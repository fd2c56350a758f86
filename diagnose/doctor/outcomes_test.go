package doctor

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/internal/manifest"
)

// surveyed is what a survey of two Services and an Ingress found.
func surveyed() Outcomes {
	s := NewSurvey()
	s.Add("default/web", &Report{
		Results:    []Result{{Check: "a", Findings: []Finding{{Code: SelectorMatchesNoPod, Grade: Proved, What: "selector app=<x> matches no pod", Fix: "mend it"}}}},
		NotChecked: []string{"nodes: forbidden"},
	})
	s.Add("default/well", &Report{Results: []Result{{Check: "a"}}})
	s.AddAround(&Around{Classed: []Classed{{"Ingress", "shop", "cart", "none"}}, Classes: map[string][]string{}})
	s.Add("default/noted", &Report{Results: []Result{{Findings: []Finding{{Code: SelectorMatchesNoPod, Grade: Note, What: "scaled to 0"}}}}})
	o := s.Outcomes()
	o.Places = map[string]manifest.Place{"Service default/web": {File: "my files/web.yaml", Line: 7}}
	return o
}

// TestSARIF has the fields that the schema asks for, and those that code scanners show.
func TestSARIF(t *testing.T) {
	var out bytes.Buffer
	if err := surveyed().WriteSARIF(&out, "v1"); err != nil {
		t.Fatal(err)
	}
	var log struct {
		Schema  string `json:"$schema"`
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name  string
					Rules []struct {
						ID, HelpURI      string
						ShortDescription struct{ Text string }
					}
				}
			}
			Results []struct {
				RuleID    string
				RuleIndex int
				Level     string
				Message   struct{ Text string }
				Locations []struct {
					PhysicalLocation *struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine int }
					}
					LogicalLocations []struct{ FullyQualifiedName, Kind string }
				}
				PartialFingerprints map[string]string
			}
		}
	}
	if err := json.Unmarshal(out.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	if log.Version != "2.1.0" || !strings.Contains(log.Schema, "sarif-2.1.0") || len(log.Runs) != 1 || len(log.Runs[0].Results) != 3 {
		t.Fatalf("the log is %s", out.String())
	}
	run := log.Runs[0]
	if len(run.Tool.Driver.Rules) != 2 {
		t.Errorf("rules %+v, want one for each code", run.Tool.Driver.Rules)
	}
	prints := map[string]bool{}
	for _, r := range run.Results {
		if rule := run.Tool.Driver.Rules[r.RuleIndex]; rule.ID != r.RuleID || rule.ShortDescription.Text == "" || !strings.HasPrefix(rule.HelpURI, "https://") {
			t.Errorf("result %+v has rule %+v", r, rule)
		}
		prints[r.PartialFingerprints["finding/v1"]] = true
	}
	if len(prints) != 3 {
		t.Errorf("fingerprints %v, want each another", prints)
	}
	web, cart := run.Results[0], run.Results[1]
	if p := web.Locations[0].PhysicalLocation; web.Level != "error" || p == nil || p.ArtifactLocation.URI != "my%20files/web.yaml" || p.Region.StartLine != 7 {
		t.Errorf("the first result is %+v", web)
	}
	if cart.Locations[0].PhysicalLocation != nil || cart.Locations[0].LogicalLocations[0].FullyQualifiedName != "Ingress shop/cart" || cart.RuleID != UnservedClass.String() {
		t.Errorf("the second result is %+v", cart)
	}
	if run.Results[2].Level != "note" {
		t.Errorf("the third result is %+v", run.Results[2])
	}

	out.Reset()
	if err := (&Report{}).Outcomes().WriteSARIF(&out, ""); err != nil || !strings.Contains(out.String(), `"results": []`) {
		t.Errorf("without findings: %v, %s", err, out.String())
	}
}

func TestJUnit(t *testing.T) {
	for failOn, failures := range map[Grade]int{Note: 3, Likely: 2} {
		var out bytes.Buffer
		if err := surveyed().WriteJUnit(&out, failOn); err != nil {
			t.Fatal(err)
		}
		var suites junitSuites
		if err := xml.Unmarshal(out.Bytes(), &suites); err != nil {
			t.Fatalf("%v: %s", err, out.String())
		}
		suite := suites.Suites[0]
		if suite.Tests != 5 || len(suite.Cases) != 5 || suite.Failures != failures || suite.Skipped != 1 {
			t.Errorf("from %s on, the suite is %s", failOn, out.String())
		}
		if c := suite.Cases[0]; c.Class != "Service default/web" || c.Line != 7 || c.Failure == nil || c.Failure.Message != "selector app=<x> matches no pod" {
			t.Errorf("the first case is %+v", c)
		}
		if c := suite.Cases[3]; c.Class != "Service default/well" || c.Failure != nil {
			t.Errorf("the fourth case is %+v", c)
		}
	}
}
