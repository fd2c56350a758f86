package doctor

import (
	"bytes"
	"strings"
	"testing"
)

// TestAround: an Ingress without a class, a class with a typo and a pool in another namespace are
// problems; what a class of somebody's serves is none, and neither is what can't be read.
func TestAround(t *testing.T) {
	around := &Around{
		Classed: []Classed{
			{"Ingress", "default", "none", ""}, {"Ingress", "default", "typo", "farway"}, {"Ingress", "default", "well", "fairway"},
			{"Gateway", "default", "typed", "fairwy"}, {"Gateway", "default", "theirs", "istio"},
		},
		Classes:        map[string][]string{"Ingress": {"fairway"}, "Gateway": {"fairway", "istio"}},
		Pools:          []Pool{{"IPAddressPool", "default", "mine"}, {"IPAddressPool", "metallb-system", "good"}},
		PoolNamespaces: []string{"metallb-system"},
		NotRead:        []string{"Gateways: forbidden"},
	}
	survey := NewSurvey()
	survey.AddAround(around)
	var out bytes.Buffer
	if err := survey.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"Ingress default/none        FW132  proved  it names no class, and none is the default; there are fairway",
		`Ingress default/typo        FW132  proved  there is no class "farway"; did you mean "fairway"?`,
		`Gateway default/typed       FW132  proved  there is no class "fairwy"; did you mean "fairway"?`,
		"IPAddressPool default/mine  FW133  likely  it counts in namespace metallb-system only",
		"not checked  Gateways: forbidden", "4 problems",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the report lacks %q:\n%s", part, out.String())
		}
	}
	for _, part := range []string{"well", "theirs", "good", "Next:"} {
		if strings.Contains(out.String(), part) {
			t.Errorf("the report has %q:\n%s", part, out.String())
		}
	}
	if around.Default = true; around.unserved(around.Classed[0]) != "" {
		t.Error("an Ingress without a class has the default")
	}
}
