package nftables

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestAdoptionChangesNothing: after a restart in which nothing changed, nothing
// is written, whatever slots and numbers churn has led to. Only chains for sizes
// that no pool has any more go.
func TestAdoptionChangesNothing(t *testing.T) {
	inNamespace(t)
	p := newPlane(t, kernel.Options{})
	table := everything()
	apply(t, p, table, false)
	web := model.PoolID{Name: "default/web:http", Proto: model.TCP}
	churn(t, p, &table, web)
	apply(t, p, withoutWeb(table), false)
	apply(t, p, table, false)
	before := nft(t, "-a", "list", "table", "inet", "fairway")

	c, err := p.socket.read()
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range newPlane(t, kernel.Options{}).difference(c, table).what {
		if !isSpare(what) {
			t.Errorf("a restart would %s", what)
		}
	}
	next := newPlane(t, kernel.Options{})
	apply(t, next, table, false)
	checkObjects(t, next, table)
	after := nft(t, "-a", "list", "table", "inet", "fairway")
	for _, name := range []string{"map slots4", "map pools", "chain services", "chain tcp4-random-2-pod"} {
		if diff := cmp.Diff(section(before, name), section(after, name)); diff != "" {
			t.Errorf("%s changed over a restart (-before +after):\n%s", name, diff)
		}
	}
}

// isSpare recognises what a comparison does about chains for sizes and times
// that no pool has any more.
func isSpare(what string) bool {
	return regexp.MustCompile(`^(flush|delete) chain ((tcp|udp|sctp)[46]-(random|source|destination)-\d+-|learn-\d)|^delete (element \S+|\d+ elements) of map (choosers-|learners)`).MatchString(what)
}

func churn(t *testing.T, p *Plane, table **model.Table, id model.PoolID) {
	t.Helper()
	for _, list := range [][]string{
		{"10.244.1.2:8080", "10.244.1.3:8080", "10.244.2.2:8080", "10.244.2.3:8080"},
		{"10.244.1.3:8080", "10.244.2.3:8080"},
		{"10.244.1.1:8080", "10.244.1.3:8080", "10.244.2.3:8080"},
	} {
		*table = editPool(*table, id, func(pool *model.Pool) { pool.Backends = backends(list...) })
		apply(t, p, *table, false)
		checkObjects(t, p, *table)
	}
}

func withoutWeb(table *model.Table) *model.Table {
	e := table.Edit()
	for f := range table.Frontends() {
		if f.Name == "default/web:http" {
			e.DeleteFrontend(f.Key)
		}
	}
	for pool := range table.Pools() {
		if pool.ID.Name == "default/web:http" {
			e.DeletePool(pool.ID)
		}
	}
	return e.Table()
}

// section is the part of nft's listing that begins with name.
func section(listing, name string) string {
	_, rest, _ := strings.Cut(listing, "\t"+name+" {")
	body, _, _ := strings.Cut(rest, "\n\t}")
	lines := strings.Split(body, ",")
	slices.Sort(lines)
	return strings.Join(lines, ",")
}
