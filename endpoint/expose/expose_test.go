package expose

import (
	"strings"
	"testing"
)

func request(change func(*Request)) Request {
	r := Request{Namespace: "default", Name: "shop", Port: 80, Protocol: "tcp", Type: "ClusterIP", To: []string{"10.77.0.12:8000", "10.77.0.13:8000"}}
	if change != nil {
		change(&r)
	}
	return r
}

func TestObjects(t *testing.T) {
	service, slices, err := request(func(r *Request) {
		r.To = append(r.To, "[fd00::12]:8000", "10.77.0.14:9000")
		r.Check = "http:/"
	}).Objects()
	if err != nil {
		t.Fatal(err)
	}
	if service.Annotations["fairway.dev/health-check"] != "http:/" || len(service.Spec.IPFamilies) != 2 || len(service.Spec.Selector) != 0 {
		t.Errorf("Service: %+v", service)
	}
	var names []string
	for _, s := range slices {
		names = append(names, s.Name)
	}
	if got := strings.Join(names, " "); got != "shop-ipv4-8000 shop-ipv6-8000 shop-ipv4-9000" || len(slices[0].Endpoints) != 2 {
		t.Errorf("slices: %s", got)
	}
}

func TestObjectsNamesTheField(t *testing.T) {
	for want, change := range map[string]func(*Request){
		`name "Shop"`:                        func(r *Request) { r.Name = "Shop" },
		"--port 0":                           func(r *Request) { r.Port = 0 },
		`--protocol "icmp"`:                  func(r *Request) { r.Protocol = "icmp" },
		`--type "External"`:                  func(r *Request) { r.Type = "External" },
		`--to "10.77.0.12"`:                  func(r *Request) { r.To = []string{"10.77.0.12"} },
		`--to "127.0.0.1:80"`:                func(r *Request) { r.To = []string{"127.0.0.1:80"} },
		`--to "10.0.0.1:80": is there twice`: func(r *Request) { r.To = []string{"10.0.0.1:80", "10.0.0.1:80"} },
		`--check "gopher:/"`:                 func(r *Request) { r.Check = "gopher:/" },
		"--check annotation":                 func(r *Request) { r.Check = "exec:/bin/true" },
	} {
		if _, _, err := request(change).Objects(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
	}
}
