package web

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/model"
)

// TestWithoutAPI: where the API tells nothing, the page shows what agents have in force,
// and no longer once the API tells.
func TestWithoutAPI(t *testing.T) {
	edit := model.NewTable().Edit()
	for i, name := range []string{"default/web:http", "default/gone:", "kube-system/kube-dns:dns"} {
		id := model.PoolID{Name: name, Proto: model.TCP}
		pool := &model.Pool{ID: id}
		if i == 0 {
			pool.Backends = []model.Backend{{Addr: netip.MustParseAddr("10.244.1.2"), Port: 8080, Weight: 1}}
		}
		edit.SetPool(pool)
		route := model.Route{Pool: id}
		edit.SetFrontend(&model.Frontend{
			Key: model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(i + 1)}), Port: 80, Proto: model.TCP}, Name: name,
			Routes: [model.NumOrigins]model.Route{route, route, route},
		})
	}
	table, served := edit.Table(), map[string][]netip.Addr{"node1": {netip.MustParseAddr("10.96.0.3")}}
	failed := errors.New("connection refused")
	p := New(Config{InForce: func(_ context.Context, failed error) (*explain.Objects, error) {
		return explain.InForce(map[string]*model.Table{"node1": table}, served, failed.Error()), nil
	}}, 1)
	if p.store.failed() != nil || p.store.settled() {
		t.Error("the API hasn't failed, and hasn't answered")
	}
	p.store.setPart("services", func(of *part) { of.err = failed })
	objects, err := p.config.InForce(t.Context(), p.store.failed())
	if err != nil || !p.store.setInForce(objects) || !p.store.settled() {
		t.Fatalf("what is in force isn't taken: %v", err)
	}
	p.survey.again(p.store.names()...)
	p.lookAtAll(t)
	if list, _ := ask[Services](t, p.services, ""); list.Found != 3 {
		t.Errorf("%d Services, not three", list.Found)
	}
	if list, _ := ask[Services](t, p.services, "q=default/web"); len(list.Services) != 1 || list.Services[0].Ready != 1 {
		t.Errorf("endpoints in force aren't counted: %+v", list.Services)
	}
	if found, _ := ask[Problems](t, p.problems, ""); found.Found != 1 || found.Problems[0].Code != doctor.NoEndpointReady || found.Problems[0].Service != "default/gone" {
		t.Errorf("problems: %+v", found)
	}
	web := explained(t, p)
	if !strings.Contains(web.Answer, "FORWARDED to its only endpoint") {
		t.Errorf("answer: %s", web.Answer)
	}
	if said := strings.Join(web.NotChecked, "; "); !strings.Contains(said, "connection refused") {
		t.Errorf("that the API fails isn't said: %s", said)
	}

	// The API answers: of two Services that agents had, it has one.
	name := types.NamespacedName{Namespace: "default", Name: "web"}
	p.serviceChanged(name, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	})
	p.sliceChanged(types.NamespacedName{Namespace: "default", Name: "web-1"}, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
	})
	for _, resource := range resources {
		p.store.setPart(resource, func(of *part) { *of = part{synced: true} })
		p.survey.again(p.store.apiTold(resource)...)
	}
	p.lookAtAll(t)
	list, _ := ask[Services](t, p.services, "")
	web = explained(t, p)
	if list.Found != 1 || p.store.setInForce(objects) || len(web.NotChecked) > 0 {
		t.Errorf("%d Services, not checked: %v; the API has told all", list.Found, web.NotChecked)
	}
}

// explained is explain's report of default/web.
func explained(t *testing.T, p *Page) *explain.Report {
	t.Helper()
	handler := func(w http.ResponseWriter, r *http.Request) {
		r.SetPathValue("namespace", "default")
		r.SetPathValue("name", "web")
		p.service(w, r)
	}
	answer, _ := ask[Service](t, handler, "")
	if answer.Explanation == nil {
		t.Fatal("the Service isn't explained")
	}
	return answer.Explanation
}
