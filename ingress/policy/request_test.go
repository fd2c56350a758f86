package policy

import "testing"

// TestHostOf: the name alone, which a redirect may lead to.
func TestHostOf(t *testing.T) {
	for host, want := range map[string]string{
		"h": "h", "H.Example.": "h.example", "h:80": "h", "h.:80": "h", "h:": "h", "192.0.2.1:80": "192.0.2.1", "[2001:db8::1]": "[2001:db8::1]", "[2001:DB8::1]:8080": "[2001:db8::1]",
		"[h]:80": "[h]", "h:80:80": "h:80:80", "": "",
	} {
		if got := HostOf(host); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}
