package check

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Spec{
		"http:/healthz?full=1": {Kind: HTTP, Path: "/healthz?full=1"},
		"http:":                {Kind: HTTP, Path: "/"},
		"https:/":              {Kind: HTTPS, Path: "/"},
		" tcp ":                {Kind: TCP},
		"tls":                  {Kind: TLS},
		"grpc":                 {Kind: GRPC},
		"grpc:shop.Cart":       {Kind: GRPC, Service: "shop.Cart"},
		`udp:ping\n\x00`:       {Kind: UDP, Payload: "ping\n\x00"},
		"icmp":                 {Kind: ICMP},
		"exec:/bin/check a b":  {Kind: Exec, Command: []string{"/bin/check", "a", "b"}},
	} {
		want.Interval, want.Timeout, want.Rise, want.Fall = DefaultInterval, DefaultTimeout, DefaultRise, DefaultFall
		got, err := Parse(text)
		if err != nil || !got.Equal(want) {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", "ftp:/", "http", "http://other.example/", "http:healthz", "http:/a b", "http:/\r\nX: y", "http:/é",
		"tcp:80", "icmp:x", "exec:", "exec", `udp:\q`, "udp:" + strings.Repeat("x", 2000), "grpc:a\x00b", "HTTP:/",
	} {
		if got, err := Parse(text); err == nil && text != "http" {
			t.Errorf("Parse(%q) = %+v, want an error", text, got)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct{ name, value, complaint string }{
		{"interval", "100ms", ""},
		{"interval", "99ms", "100ms"},
		{"interval", "soon", "duration"},
		{"interval", "-2s", "duration"},
		{"timeout", "3s", "interval"},
		{"timeout", "2s", ""},
		{"rise", "0", "1 to 100"},
		{"fall", "two", "whole number"},
		{"fall", "1", ""},
		{"status", "200-299,401", ""},
		{"status", "299-200", "status codes"},
		{"status", "99", "status codes"},
		{"port", "70000", "65535"},
		{"port", "admin", ""},
		{"host", "www.example.org", ""},
		{"host", "a\r\nb", "host name"},
	} {
		spec, err := Parse("tcp")
		if err != nil {
			t.Fatal(err)
		}
		before := spec
		for _, setting := range Settings() {
			if setting.Name == c.name {
				err = setting.Set(&spec, c.value)
			}
		}
		if c.complaint == "" && err != nil || c.complaint != "" && (err == nil || !strings.Contains(err.Error(), c.complaint)) {
			t.Errorf("%s=%q: %v, want an error with %q", c.name, c.value, err, c.complaint)
		}
		if err != nil && !spec.Equal(before) {
			t.Errorf("%s=%q was refused and changed the check", c.name, c.value)
		}
	}
}

func TestShortIntervalShortensTimeout(t *testing.T) {
	spec, err := Parse("tcp")
	if err != nil {
		t.Fatal(err)
	}
	if err := Settings()[0].Set(&spec, "200ms"); err != nil || spec.Timeout != 200*time.Millisecond {
		t.Errorf("timeout %s, %v", spec.Timeout, err)
	}
}

func TestAllowed(t *testing.T) {
	for _, text := range []string{"10.77.0.12", "192.0.2.1", "fd00::1", "2001:db8::1", "::ffff:10.1.2.3", "64:ff9b::a4d:c"} {
		if err := Allowed(netip.MustParseAddr(text)); err != nil {
			t.Error(err)
		}
	}
	for _, text := range []string{
		"127.0.0.1", "127.8.8.8", "0.0.0.0", "169.254.169.254", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0",
		"ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "::127.0.0.1",
		"64:ff9b:1::7f00:1", "64:ff9b:1::a9fe:a9fe", "2002:7f00:1::", "2002:a9fe:a9fe::1", "0:0:0:0:0:ffff:7f00:1", "fd00:ec2::254", "febf::1", "fec0::1",
	} {
		if Allowed(netip.MustParseAddr(text)) == nil {
			t.Errorf("%s is allowed", text)
		}
	}
	if Allowed(netip.Addr{}) == nil {
		t.Error("no address is allowed")
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"http:/healthz", "udp:\\x00", "exec:a", "grpc:x", "tcp"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := Parse(text)
		if err != nil {
			return
		}
		if strings.ContainsAny(spec.Path, "\r\n ") || len(spec.Payload) > maxPayload {
			t.Errorf("Parse(%q) = %+v", text, spec)
		}
	})
}
