package nftables

import (
	"context"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

func apply(t testing.TB, p *Plane, want *model.Table, verify bool) {
	t.Helper()
	if err := p.Apply(context.Background(), want, verify); err != nil {
		t.Fatal(err)
	}
}

func checkObjects(t testing.TB, p *Plane, table *model.Table) {
	t.Helper()
	want, err := Render(table, p.options)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Objects(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kernel differs from rendering (-want +got):\n%s", diff)
	}
}

// nft runs the nft command: it proves that others can read the table.
func nft(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestApplyReadsBackAsRendered(t *testing.T) {
	inNamespace(t)
	p := newPlane(t, kernel.Options{})
	table := everything()
	apply(t, p, table, false)
	checkObjects(t, p, table)
}

func TestOthersCanReadTheTable(t *testing.T) {
	inNamespace(t)
	p := newPlane(t, kernel.Options{})
	apply(t, p, everything(), false)
	listed := nft(t, "list", "table", "inet", "fairway")
	t.Log(listed)
}
