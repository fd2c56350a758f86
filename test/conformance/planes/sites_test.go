package planes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/test/vm"
)

// siteCases are those of the plain topology that are played on sites, too: enough to see
// each way that packets take.
var siteCases = []string{
	"clusterip", "clusterip-udp", "nodeport", "nodeport-udp", "noendpoints", "external-local", "loadbalancer", "affinity", "hairpin",
	"udp-flows", "direct-return",
}

// sites reads testdata/sites: each site is a way to wire the nodes that cases play on.
func sites(t *testing.T) []*Site {
	t.Helper()
	paths, err := filepath.Glob("testdata/sites/*.site")
	if err != nil || len(paths) == 0 {
		t.Fatalf("find sites: %d, %v", len(paths), err)
	}
	var all []*Site
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		site, err := ParseSite(strings.TrimSuffix(filepath.Base(path), ".site"), data)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, site)
	}
	return all
}

// TestSites plays cases on sites, with every data plane. A plain test run takes only the
// sites that say so; the build tag sites takes all (everySite):
//
//	go test ./test/conformance/planes -run TestSites/uplink-bridge/ebpf
//	go test -tags sites ./test/conformance/planes -run TestSites        # on all of them
func TestSites(t *testing.T) {
	t.Parallel()
	for _, site := range sites(t) {
		if !everySite && !site.Every {
			continue
		}
		t.Run(site.Name, func(t *testing.T) {
			t.Parallel()
			for _, kind := range dataplane.Kinds() {
				if !everySite && len(kernelNeeds[kind.Name]) > 0 {
					continue // in the virtual machine, which is slow
				}
				if site.Lacks[kind.Name] != "" {
					continue // TestLacksAreDeclared
				}
				t.Run(kind.Name, func(t *testing.T) {
					t.Parallel()
					needs := slices.Concat(site.Needs, kernelNeeds[kind.Name])
					vm.With(t, func(t *testing.T) { playSite(t, site, kind.Name) }, needs...)
				})
			}
		})
	}
}

func playSite(t *testing.T, site *Site, kind string) {
	th := newTheatre(t, "")
	th.site = site
	all := cases(t, siteCase)
	more := site.Plays
	if everySite {
		more = slices.Concat(more, siteCases)
	}
	for _, name := range more {
		all = append(all, cases(t, "testdata/cases/"+name+".txtar")...)
	}
	for _, c := range all {
		if !everySite && strings.HasSuffix(c.Name, OtherFamilySuffix) {
			continue // those of sites are about both families
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			play(t, th, kind, c)
		})
	}
}

// TestLacksAreDeclared: what a mode can't do on a site, it declares, and docs have a row for it.
// What it declares of Linux' own networks, a site shows.
func TestLacksAreDeclared(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/reference/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	type lack struct{ mode, network string }
	shown := map[lack]string{{"ebpf", "IP over InfiniBand"}: "no kernel has such an interface without the hardware"}
	for _, site := range sites(t) {
		for mode, network := range site.Lacks {
			shown[lack{mode, network}] = site.Name
		}
		if site.OneWay {
			for _, mode := range translators {
				shown[lack{mode, "bridge without hairpin mode"}] = site.Name
			}
		}
	}
	for _, kind := range dataplane.Kinds() {
		for _, u := range kind.Networks {
			l := lack{kind.Name, u.Value}
			if u.Feature != kernel.Network || u.Why == "" || shown[l] == "" {
				t.Errorf("%s declares that it lacks %s, which no site shows", l.mode, u)
			}
			delete(shown, l)
			documented := slices.ContainsFunc(strings.Split(string(docs), "\n"), func(line string) bool {
				network, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
				return strings.Contains(network, u.Value) && strings.Contains(network, kind.Name)
			})
			if !documented {
				t.Errorf("%s mode lacks %s, of which docs/reference/semantics.md has no row", kind.Name, u)
			}
		}
	}
	for l, where := range shown {
		t.Errorf("site %s says that %s mode lacks %q, which the mode doesn't declare", where, l.mode, l.network)
	}
}

func TestParseSiteErrors(t *testing.T) {
	for text, complaint := range map[string]string{
		"jump":                    `line 1: "jump": no step`,
		"\non node":               `line 2: "on": no step, or not with 1 arguments`,
		"during needs x":          `"needs" can't be done during a case`,
		"source nowhere":          "ParseAddr",
		"lower node\nlower a b c": `line 2: "lower": no step, or not with 3 arguments`,
	} {
		if _, err := ParseSite("x", []byte(text)); err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("%q: %v, expected %q", text, err, complaint)
		}
	}
}
