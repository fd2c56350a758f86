package compile

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/ingress/model"
)

var update = flag.Bool("update", false, "write what comes out into the golden files")

// TestGolden runs the cases in testdata: archives in which "objects.yaml" goes
// in, and "table", "status", "streams" and "problems" come out.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out *Output
			for i := range archive.Files {
				section := &archive.Files[i]
				if section.Name == "objects.yaml" {
					out = Compile(readObjects(t, section.Data), Options{Endpoints: endpointOf})
					continue
				}
				if got := show(t, out, section.Name); got != string(section.Data) && *update {
					section.Data = []byte(got)
				} else if got != string(section.Data) {
					t.Errorf("%s is\n%s\nwant\n%s", section.Name, got, section.Data)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// endpointOf is the one endpoint that every Service has.
func endpointOf(_ types.NamespacedName, port *corev1.ServicePort) []model.Endpoint {
	return []model.Endpoint{{Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(port.TargetPort.IntValue())), Weight: 1}}
}

func show(t *testing.T, out *Output, what string) string {
	t.Helper()
	var lines []string
	switch what {
	case "table":
		return out.Table.String()
	case "status":
		for name, conditions := range out.Classes {
			lines = append(lines, fmt.Sprintf("GatewayClass %s: %s\n", name, brief(conditions)))
		}
		for name, g := range out.Gateways {
			text := fmt.Sprintf("Gateway %s: %s\n", name, brief(g.Status.Conditions))
			for _, l := range g.Status.Listeners {
				text += fmt.Sprintf("  %s: %d attached, %s\n", l.Name, l.AttachedRoutes, brief(l.Conditions))
			}
			lines = append(lines, text)
		}
		for name, s := range out.ListenerSets {
			text := fmt.Sprintf("ListenerSet %s: %s\n", name, brief(s.Conditions))
			for _, l := range s.Listeners {
				text += fmt.Sprintf("  %s: %d attached, %s\n", l.Name, l.AttachedRoutes, brief(l.Conditions))
			}
			lines = append(lines, text)
		}
		for key, parents := range out.Routes {
			text := fmt.Sprintf("%s %s:\n", key.Kind, key.NamespacedName)
			for _, p := range parents {
				text += fmt.Sprintf("  %s/%s: %s\n", p.ParentRef.Name, value(p.ParentRef.SectionName, ""), brief(p.Conditions))
			}
			lines = append(lines, text)
		}
		for name, ancestors := range out.Policies {
			for _, a := range ancestors {
				lines = append(lines, fmt.Sprintf("BackendTLSPolicy %s: %s: %s\n", name, a.AncestorRef.Name, brief(a.Conditions)))
			}
		}
		for name := range out.Ingresses {
			lines = append(lines, fmt.Sprintf("Ingress %s: served\n", name))
		}
	case "wanted":
		for _, w := range out.Wanted {
			lines = append(lines, fmt.Sprintf("%s %s: Secret %s for %v\n", w.Kind, w.Object, w.Secret, w.Hosts))
		}
	case "streams":
		for _, s := range out.Streams {
			text := fmt.Sprintf("%s %d/%s:", s.Gateway, s.Port, s.Protocol)
			for _, b := range s.Backends {
				text += fmt.Sprintf(" %s:%d*%d", b.Service, b.Port.Port, b.Weight)
			}
			lines = append(lines, text+"\n")
		}
	case "problems":
		for _, p := range out.Problems {
			lines = append(lines, fmt.Sprintf("%s %s %s: %s\n", p.Kind, p.Object, p.Reason, p.Message))
		}
	default:
		t.Fatalf("no section is called %s", what)
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// brief is conditions in a line; of those that are as they should be, the type.
func brief(list []metav1.Condition) string {
	var out []string
	for _, c := range list {
		switch {
		case c.Type == "Conflicted" && c.Status == metav1.ConditionFalse:
		case c.Status == metav1.ConditionTrue && (c.Reason == c.Type || c.Type == c.Reason):
			out = append(out, c.Type)
		case c.Message == "":
			out = append(out, fmt.Sprintf("%s=%s(%s)", c.Type, c.Status, c.Reason))
		default:
			out = append(out, fmt.Sprintf("%s=%s(%s: %s)", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	return strings.Join(out, " ")
}

// readObjects reads manifests.
func readObjects(t *testing.T, text []byte) *Objects {
	t.Helper()
	o := &Objects{
		Namespaces: map[string]*corev1.Namespace{}, Services: map[types.NamespacedName]*corev1.Service{},
		Secrets: map[types.NamespacedName]*corev1.Secret{}, ConfigMaps: map[types.NamespacedName]*corev1.ConfigMap{},
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return o
		}
		if err != nil {
			t.Fatal(err)
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "GatewayClass":
			o.Classes = append(o.Classes, read[gatewayv1.GatewayClass](t, document))
		case "Gateway":
			o.Gateways = append(o.Gateways, read[gatewayv1.Gateway](t, document))
		case "ListenerSet":
			o.ListenerSets = append(o.ListenerSets, read[gatewayv1.ListenerSet](t, document))
		case "HTTPRoute":
			o.HTTPRoutes = append(o.HTTPRoutes, read[gatewayv1.HTTPRoute](t, document))
		case "GRPCRoute":
			o.GRPCRoutes = append(o.GRPCRoutes, read[gatewayv1.GRPCRoute](t, document))
		case "TLSRoute":
			o.TLSRoutes = append(o.TLSRoutes, read[gatewayv1.TLSRoute](t, document))
		case "TCPRoute":
			o.TCPRoutes = append(o.TCPRoutes, read[gatewayv1.TCPRoute](t, document))
		case "UDPRoute":
			o.UDPRoutes = append(o.UDPRoutes, read[gatewayv1.UDPRoute](t, document))
		case "BackendTLSPolicy":
			o.BackendTLSPolicies = append(o.BackendTLSPolicies, read[gatewayv1.BackendTLSPolicy](t, document))
		case "ReferenceGrant":
			o.Grants = append(o.Grants, read[gatewayv1.ReferenceGrant](t, document))
		case "Ingress":
			o.Ingresses = append(o.Ingresses, read[networkingv1.Ingress](t, document))
		case "IngressClass":
			o.IngressClasses = append(o.IngressClasses, read[networkingv1.IngressClass](t, document))
		case "Namespace":
			n := read[corev1.Namespace](t, document)
			o.Namespaces[n.Name] = n
		case "Service":
			s := read[corev1.Service](t, document)
			o.Services[nameOf(s)] = s
		case "Secret":
			s := read[corev1.Secret](t, document)
			for k, v := range s.StringData {
				if s.Data == nil {
					s.Data = map[string][]byte{}
				}
				s.Data[k] = []byte(v)
			}
			if s.Annotations["test"] == "certificate" {
				s.Data = aPair(t)
			}
			o.Secrets[nameOf(s)] = s
		case "ConfigMap":
			m := read[corev1.ConfigMap](t, document)
			if m.Annotations["test"] == "certificate" {
				m.Data = map[string]string{"ca.crt": string(aPair(t)[corev1.TLSCertKey])}
			}
			o.ConfigMaps[nameOf(m)] = m
		default:
			t.Fatalf("kind %q is not known", kind.Kind)
		}
	}
}

// aPair is a certificate and its key, as a Secret has them.
func aPair(t testing.TB) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"*.example.com"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

func read[T any](t *testing.T, document []byte) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict(document, out); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	return out
}
