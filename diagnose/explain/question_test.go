package explain

import (
	"strings"
	"testing"
)

// TestNonsense: what can't be meant is refused with the part that is wrong.
func TestNonsense(t *testing.T) {
	for text, wrong := range map[string]string{
		"10.96.0.1:0": "port 0", "[fd00::a]:0": "port 0", "10.96.0.1:80/icmp": `"icmp" must be tcp`, "[fd00::a]:80/http": `"http" must be tcp`,
		"[fd00::a": "want [ADDRESS]", "[fd00::a]:99999": "want [ADDRESS]", "10.96.0.1:x": `port "x"`, "1.2.3": "no IP address", "svc/": "missing", "svc/web:99999": "port 99999 is not a number from 1 to 65535", "web:0": "port 0 is not", "web.default.svc:-1/udp": "port -1 is not", "pod/web": "not a pod", "": "missing",
	} {
		if _, err := ParseTarget(text, "default"); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v, want %q", text, err, wrong)
		}
	}
	for text, want := range map[string]string{
		"fd00::a": "fd00::a", "[fd00::a]": "fd00::a", "[fd00::a]:80/udp": "fd00::a", "::ffff:10.0.0.1": "10.0.0.1", "10.0.0.1:80/TCP": "10.0.0.1",
	} {
		if got, err := ParseTarget(text, "default"); err != nil || got.Addr.String() != want {
			t.Errorf("%q: %v, %v", text, got.Addr, err)
		}
	}
	for text, port := range map[string]string{"svc/web:http": "http", "svc/web:65535": "65535", "web:8080-tls/tcp": "8080-tls", "svc/web": ""} {
		if got, err := ParseTarget(text, "default"); err != nil || got.Port != port {
			t.Errorf("%q: port %q, %v", text, got.Port, err)
		}
	}
	for text, want := range map[string]string{"shop/web:80": "shop/web", "svc/web": "default/web", "web": "default/web", "web.shop.svc": "shop/web", "shop/web/tcp": "shop/web"} {
		if got, err := ParseTarget(text, "default"); err != nil || got.Namespace+"/"+got.Name != want {
			t.Errorf("%q: %s/%s, %v", text, got.Namespace, got.Name, err)
		}
	}
}
