package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/diagnose/doctor"
)

// many are Services with two endpoints each; one of them has none that is ready.
const (
	many   = 10_000
	broken = 4321
)

// full is a page that knows 10,000 Services.
func full(t *testing.T) *Page {
	p := New(Config{}, 1)
	for i := range many {
		name := types.NamespacedName{Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("s%d", i)}
		ip := fmt.Sprintf("10.%d.%d.%d", 96+i/62500, i/250, 1+i%250)
		p.serviceChanged(name, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
			Spec:       corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
		})
		ready, port, text := i != broken, int32(8080), "http"
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: name.Name}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &text, Port: &port}},
		}
		for n := range 2 {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 200+n, i/250, 1+i%250)}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			})
		}
		p.sliceChanged(types.NamespacedName{Namespace: name.Namespace, Name: slice.Name}, slice)
	}
	for _, resource := range resources {
		p.store.setPart(resource, func(of *part) { of.synced = true })
	}
	p.lookAtAll(t)
	return p
}

// lookAtAll has everything that waits looked at, and returns how many those were.
func (p *Page) lookAtAll(t *testing.T) int {
	n := 0
	for names := p.survey.next(); len(names) > 0; names = p.survey.next() {
		for _, name := range names {
			p.survey.look(t.Context(), name)
			n++
		}
	}
	return n
}

func ask[T any](t *testing.T, handler http.HandlerFunc, query string) (answer T, size int) {
	t.Helper()
	w := httptest.NewRecorder()
	handler(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?"+query, nil))
	size = w.Body.Len()
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d: %s", query, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	return answer, size
}

// TestManyServices: the list comes in pages of a bounded size, the search finds one
// among all, and a change has only what it concerns looked at.
func TestManyServices(t *testing.T) {
	p := full(t)
	seen := map[string]bool{}
	for offset := 0; offset < many; {
		page, size := ask[Services](t, p.services, fmt.Sprintf("sort=worst&limit=100000&offset=%d", offset))
		if page.Total != many || page.Found != many || len(page.Services) != mostRows || size > 64<<10 {
			t.Fatalf("at %d: %d of %d, %d rows in %d bytes", offset, page.Found, page.Total, len(page.Services), size)
		}
		if first := page.Services[0]; offset == 0 && first.Name != fmt.Sprintf("s%d", broken) {
			t.Errorf("the worst is %+v", first)
		}
		for _, s := range page.Services {
			seen[s.Namespace+"/"+s.Name] = true
		}
		offset += len(page.Services)
	}
	if len(seen) != many {
		t.Errorf("%d different Services in all pages", len(seen))
	}
	if page, _ := ask[Services](t, p.services, fmt.Sprintf("offset=%d", 2*many)); len(page.Services) != 0 || page.Found != many {
		t.Errorf("behind the end: %+v", page)
	}
	if page, _ := ask[Services](t, p.services, "q=s9876"); page.Found != 1 || page.Services[0].Name != "s9876" || page.Services[0].Ready != 2 {
		t.Errorf("search: %+v", page)
	}
	problems, _ := ask[Problems](t, p.problems, "grade=proved")
	if problems.Found != 1 || problems.Problems[0].Code != doctor.NoEndpointReady || problems.Problems[0].Service != fmt.Sprintf("team-%d/s%d", broken%100, broken) {
		t.Errorf("problems: %+v", problems)
	}

	name := types.NamespacedName{Namespace: "team-7", Name: "s7-1"}
	slice := p.store.slicesOf(types.NamespacedName{Namespace: "team-7", Name: "s7"})[0].DeepCopy()
	no := false
	slice.Endpoints[0].Conditions.Ready = &no
	p.sliceChanged(name, slice)
	if n := p.lookAtAll(t); n != 1 {
		t.Errorf("a change of one Service had %d looked at", n)
	}
	if page, _ := ask[Services](t, p.services, "q=team-7/s7+"); page.Services[0].Ready != 1 {
		t.Errorf("after the change: %+v", page.Services[0])
	}
}
