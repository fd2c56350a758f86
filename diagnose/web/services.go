package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
)

// Row is a Service in a list.
type Row struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	Addresses []string `json:"addresses,omitempty"`
	Ports     []string `json:"ports,omitempty"` // "80/TCP"
	Ready     int      `json:"ready"`
	Endpoints int      `json:"endpoints"`
	Grade     string   `json:"grade,omitempty"` // of the surest finding; "" if there is none
	Codes     []string `json:"codes,omitempty"`
	Error     string   `json:"error,omitempty"` // why it couldn't be looked at
	rank      int      // of the grade
}

// Services is a page of the list.
type Services struct {
	header
	Total    int   `json:"total"`    // of all Services
	Found    int   `json:"found"`    // by the search
	Offset   int   `json:"offset"`   // of the first one here
	Services []Row `json:"services"` // at most mostRows
	Waiting  int   `json:"waiting"`  // to be looked at
}

// mostRows is how many rows one answer has at most.
const mostRows = 200

func rowOf(s *corev1.Service, list []*discoveryv1.EndpointSlice) Row {
	r := Row{Namespace: s.Namespace, Name: s.Name, Type: cmp.Or(string(s.Spec.Type), string(corev1.ServiceTypeClusterIP))}
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		r.Addresses = []string{s.Spec.ExternalName}
	case s.Spec.ClusterIP == corev1.ClusterIPNone:
		r.Addresses = []string{"headless"}
	}
	for _, a := range explain.AddressesOf(s) {
		r.Addresses = append(r.Addresses, a.String())
	}
	for _, p := range s.Spec.Ports {
		text := fmt.Sprintf("%d/%s", p.Port, cmp.Or(p.Protocol, corev1.ProtocolTCP))
		if p.NodePort != 0 {
			text = fmt.Sprintf("%d:%s", p.Port, strings.Replace(text, fmt.Sprint(p.Port), fmt.Sprint(p.NodePort), 1))
		}
		r.Ports = append(r.Ports, text)
	}
	if s.Spec.Type == "" && slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 }) {
		r.Type = string(corev1.ServiceTypeNodePort) // or LoadBalancer: agents don't tell which
	}
	r.Ready, r.Endpoints = countEndpoints(list)
	return r
}

// rowIn is the same of objects, which may be what agents have in force.
func rowIn(o *explain.Objects, s *corev1.Service) Row {
	r := rowOf(s, o.SlicesOf(s))
	if o.NoAPI != "" {
		n := o.TakingInForce(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
		r.Ready, r.Endpoints = n, n
	}
	return r
}

// judge takes in what doctor found.
func (r *Row) judge(findings []doctor.Finding) {
	for _, f := range findings {
		if rank := int(f.Grade) + 1; rank > r.rank {
			r.rank, r.Grade = rank, f.Grade.String()
		}
		if code := f.Code.String(); !slices.Contains(r.Codes, code) {
			r.Codes = append(r.Codes, code)
		}
	}
}

// searchText is what a search looks through.
func searchText(r Row, s *corev1.Service) string {
	words := slices.Concat([]string{r.Namespace + "/" + r.Name, r.Name + "." + r.Namespace + ".svc", r.Type, explain.SelectorText(s.Spec.Selector)}, r.Addresses, r.Ports, r.Codes)
	for _, p := range s.Spec.Ports {
		words = append(words, p.Name, p.TargetPort.String())
	}
	return strings.ToLower(strings.Join(words, " "))
}

// matching are the results that have every word of a search.
func matching(all []*result, query string) []*result {
	words := strings.Fields(strings.ToLower(query))
	return slices.DeleteFunc(all, func(r *result) bool {
		return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(r.search, w) })
	})
}

// worstFirst orders Services: those with the surest findings first, then by name.
func worstFirst(a, b *result) int {
	return cmp.Or(cmp.Compare(b.row.rank, a.row.rank), byRowName(a, b))
}

func byRowName(a, b *result) int {
	return cmp.Or(cmp.Compare(a.row.Namespace, b.row.Namespace), cmp.Compare(a.row.Name, b.row.Name))
}

// services answers GET /api/v1/services?q=&namespace=&sort=&offset=&limit=.
func (p *Page) services(w http.ResponseWriter, r *http.Request) {
	offset, limit, err := pageOf(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	all, waiting := p.survey.all()
	answer := Services{header: headerOf("Services"), Total: len(all), Offset: offset, Waiting: waiting, Services: []Row{}}
	found := matching(all, r.FormValue("q"))
	switch order := r.FormValue("sort"); order {
	case "", "name":
		slices.SortFunc(found, byRowName)
	case "worst":
		slices.SortFunc(found, worstFirst)
	default:
		fail(w, http.StatusBadRequest, fmt.Errorf("sort: %q must be name or worst", order))
		return
	}
	answer.Found = len(found)
	for _, one := range cut(found, offset, limit) {
		answer.Services = append(answer.Services, one.row)
	}
	reply(w, answer)
}

// cut is a part of a list.
func cut[T any](list []T, offset, limit int) []T {
	offset = min(offset, len(list))
	return list[offset:min(offset+limit, len(list))]
}
