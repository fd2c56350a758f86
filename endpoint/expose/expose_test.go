package expose

import (
	"strings"
	"testing"
)

func request(change func(*Request)) Request {
	r := Request{Namespace: "default", Name: "shop", Ports: []string{"80"}, Protocol: "tcp", Type: "ClusterIP", To: []string{"10.77.0.12:8000", "10.77.0.13:8000"}}
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
		"--port 0":                           func(r *Request) { r.Ports = []string{"0"} },
		`--protocol "icmp"`:                  func(r *Request) { r.Protocol = "icmp" },
		`--type "External"`:                  func(r *Request) { r.Type = "External" },
		`--to "10.77.0.12"`:                  func(r *Request) { r.To = []string{"10.77.0.12"} },
		`--to "127.0.0.1:80"`:                func(r *Request) { r.To = []string{"127.0.0.1:80"} },
		`--to "10.0.0.1:80": is there twice`: func(r *Request) { r.To = []string{"10.0.0.1:80", "10.0.0.1:80"} },
		`--check "gopher:/"`:                 func(r *Request) { r.Check = "gopher:/" },
		"--port 80:8000: is there twice":     func(r *Request) { r.Ports = []string{"80", "80:8000"} },
		"--port 80:x":                        func(r *Request) { r.Ports = []string{"80:x"} },
		"with several --port":                func(r *Request) { r.Ports = []string{"80", "443"} },
		"endpoints have port 9000":           func(r *Request) { r.Ports = []string{"80:9000"} },
		`--weight "10.77.0.12"`:              func(r *Request) { r.Weights = []string{"10.77.0.12"} },
		`no endpoint of --to`:                func(r *Request) { r.Weights = []string{"10.77.0.99=2"} },
		`--backup "10.77.0.12:80"`:           func(r *Request) { r.Backups, r.Check = []string{"10.77.0.12:80"}, "tcp" },
		`--backup "10.77.0.99"`:              func(r *Request) { r.Backups, r.Check = []string{"10.77.0.99"}, "tcp" },
		"add --check":                        func(r *Request) { r.Backups = []string{"10.77.0.12"} },
		"all endpoints of --to are backups":  func(r *Request) { r.To, r.Backups, r.Check = []string{"10.77.0.12:80"}, []string{"10.77.0.12"}, "tcp" },
		"--keep-client-address":              func(r *Request) { r.KeepClientAddress = true },
		"--check annotation":                 func(r *Request) { r.Check = "exec:/bin/true" },
	} {
		if _, _, err := request(change).Objects(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
	}
}

// TestSeveralPorts: each port has a name, in the Service and in the slices.
func TestSeveralPorts(t *testing.T) {
	service, slices, err := request(func(r *Request) {
		r.Ports, r.To, r.Weights = []string{"80:8000", "443"}, []string{"10.77.0.12", "[fd00::12]"}, []string{"10.77.0.12=3"}
		r.Type, r.KeepClientAddress = "LoadBalancer", true
		r.Backups, r.Check = []string{"fd00::12"}, "tcp"
	}).Objects()
	if err != nil {
		t.Fatal(err)
	}
	if p := service.Spec.Ports; len(p) != 2 || p[0].Name != "port-80" || p[0].TargetPort.IntValue() != 8000 || p[1].TargetPort.IntValue() != 443 {
		t.Errorf("ports: %+v", p)
	}
	if service.Annotations["fairway.dev/weights"] != "10.77.0.12=3" || service.Annotations["fairway.dev/backup"] != "fd00::12" || service.Spec.ExternalTrafficPolicy != "Local" {
		t.Errorf("Service: %+v", service)
	}
	if len(slices) != 2 || len(slices[0].Ports) != 2 || *slices[1].Ports[0].Name != "port-80" || *slices[1].Ports[1].Port != 443 {
		t.Errorf("slices: %+v", slices)
	}
}

// TestHosts: an Ingress for all hosts, with the certificate that was asked for.
func TestHosts(t *testing.T) {
	r := request(func(r *Request) { r.Web = Web{Hosts: []string{"shop.example.com", "*.example.org"}, Path: "/shop"} })
	service, _, err := r.Objects()
	if err != nil {
		t.Fatal(err)
	}
	for tls, want := range map[string]string{"": "", "auto": "shop-tls", "wildcard": "wildcard", "a.pem,b.pem": "shop-tls"} {
		r.Web.TLS = tls
		ingress, secret, err := r.Ingress(service)
		if err != nil {
			t.Fatal(err)
		}
		if len(ingress.Spec.Rules) != 2 || ingress.Spec.Rules[1].Host != "*.example.org" || ingress.Spec.Rules[0].HTTP.Paths[0].Path != "/shop" {
			t.Errorf("rules: %+v", ingress.Spec.Rules)
		}
		if want == "" != (len(ingress.Spec.TLS) == 0) || want != "" && ingress.Spec.TLS[0].SecretName != want {
			t.Errorf("--tls %q: %+v", tls, ingress.Spec.TLS)
		}
		if (ingress.Annotations["fairway.dev/acme"] == "true") != (tls == "auto") || (secret != nil) != strings.Contains(tls, ",") {
			t.Errorf("--tls %q: annotations %v, Secret %v", tls, ingress.Annotations, secret)
		}
	}
	for want, change := range map[string]func(*Web){
		`--host "Shop"`:                      func(w *Web) { w.Hosts = []string{"Shop"} },
		`--host "a.example": is there twice`: func(w *Web) { w.Hosts = []string{"a.example", "a.example"} },
		`--path "shop"`:                      func(w *Web) { w.Path = "shop" },
		`--tls "A b"`:                        func(w *Web) { w.TLS = "A b" },
		"--tls and --path belong to --host":  func(w *Web) { w.Hosts, w.TLS = nil, "auto" },
	} {
		r.Web = Web{Hosts: []string{"shop.example.com"}}
		change(&r.Web)
		if _, _, err := r.Ingress(service); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
	}
}
