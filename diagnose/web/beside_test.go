package web

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/test/fakeapi"
)

// TestBeside: the problems of the page have addresses that no node announces, by their Service,
// and objects that nobody acts on, by their kind and name. Agents aren't asked for each request.
func TestBeside(t *testing.T) {
	asked := 0
	r := start(t, "", func(_ *fakeapi.Server, c *Config) {
		c.Beside = func(context.Context, []*corev1.Service) []doctor.ServiceReport {
			asked++
			return []doctor.ServiceReport{
				{Service: "default/web", Findings: []doctor.Finding{{Code: doctor.NotAnnounced, Grade: doctor.Proved, What: "no node announces 10.77.0.100"}}},
				{Service: "Ingress default/shop", Findings: []doctor.Finding{{Code: doctor.UnservedClass, Grade: doctor.Proved, What: "it names no class"}}},
			}
		}
	}).enter()
	var got Problems
	for range 3 {
		got = Problems{}
		r.get("/problems", &got)
	}
	want := map[doctor.Code][2]string{
		doctor.NotAnnounced:  {"default/web", "no node announces 10.77.0.100"},
		doctor.UnservedClass: {"", "Ingress default/shop: it names no class"},
	}
	for _, p := range got.Problems {
		if w, is := want[p.Code]; is && (p.Service != w[0] || p.What != w[1] || p.Title == "") {
			t.Errorf("%s is shown as %+v", p.Code, p)
		}
		delete(want, p.Code)
	}
	if len(want) > 0 || asked != 1 {
		t.Errorf("not shown: %v; asked %d times", want, asked)
	}
}

// TestBesideOfNobody: what a browser that went away didn't wait for is no answer for others.
func TestBesideOfNobody(t *testing.T) {
	var b beside
	ask := func(ctx context.Context) []doctor.ServiceReport {
		if ctx.Err() != nil {
			return nil
		}
		return []doctor.ServiceReport{{Service: "default/web"}}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	b.get(gone, ask)
	if got := b.get(t.Context(), ask); len(got) != 1 {
		t.Errorf("another browser gets %v", got)
	}
}
