package expose

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
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

// TestPlace: endpoints name the machine that has their address, which must have joined.
func TestPlace(t *testing.T) {
	service, made, err := request(func(r *Request) { r.Type, r.KeepClientAddress = "LoadBalancer", true }).Objects()
	if err != nil {
		t.Fatal(err)
	}
	machine := func(name, address string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
	}
	o := Objects{Service: service, Slices: made}
	if err := Place(o, []corev1.Node{machine("m2", "10.77.0.12")}); err == nil || !strings.Contains(err.Error(), "10.77.0.13") {
		t.Errorf("with an address of no machine: %v", err)
	}
	if err := Place(o, []corev1.Node{machine("m2", "10.77.0.12"), machine("m3", "10.77.0.13")}); err != nil {
		t.Fatal(err)
	}
	if e := made[0].Endpoints; *e[0].NodeName != "m2" || *e[1].NodeName != "m3" {
		t.Errorf("endpoints: %+v", e)
	}
}

// TestApplyRefuses: a certificate that isn't there and a host that leads elsewhere leave nothing.
func TestApplyRefuses(t *testing.T) {
	class, prefix := "fairway", networkingv1.PathTypePrefix
	taken := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "first"}, Spec: networkingv1.IngressSpec{IngressClassName: &class, Rules: []networkingv1.IngressRule{{
		Host: "shop.example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix}}}},
	}}}}
	opaque := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "opaque"}, Type: corev1.SecretTypeOpaque}
	for want, web := range map[string]Web{
		"there is no Secret default/lost":             {Hosts: []string{"a.example.com"}, TLS: "lost"},
		"the Secret is of type Opaque":                {Hosts: []string{"a.example.com"}, TLS: "opaque"},
		"path / of it belongs to Ingress other/first": {Hosts: []string{"shop.example.com"}},
	} {
		r := request(func(r *Request) { r.Web = web })
		service, made, err := r.Objects()
		if err != nil {
			t.Fatal(err)
		}
		o := Objects{Service: service, Slices: made}
		if o.Ingress, o.Secret, err = r.Ingress(service); err != nil {
			t.Fatal(err)
		}
		client := fake.NewClientset(taken, opaque)
		if _, _, err := Apply(t.Context(), client, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
		for _, a := range client.Actions() {
			if a.GetVerb() != "get" && a.GetVerb() != "list" {
				t.Errorf("%s: %s of %s", want, a.GetVerb(), a.GetResource().Resource)
			}
		}
	}
}
