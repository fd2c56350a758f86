package outside

import (
	"strings"
	"testing"
	"time"
)

func TestNames(t *testing.T) {
	for _, c := range []struct {
		namespace, annotation string
		want                  string
		problems              int
	}{
		{"default", "", "web.example.lan.", 0},
		{"shop", "", "web.shop.example.lan.", 0},
		{"shop", "WWW.Example.LAN, *.apps.example.lan.,www.example.lan", "www.example.lan. *.apps.example.lan.", 0},
		{"shop", "www.example.org, evilexample.lan", "", 0},
		{"shop", "a b.example.lan,-x.example.lan,ok.example.lan", "ok.example.lan.", 2},
		{"shop", "example.lan", "example.lan.", 0},
	} {
		annotations := map[string]string{}
		if c.annotation != "" {
			annotations[AnnotationHostname] = c.annotation
		}
		names, problems := Names("example.lan.", c.namespace, "web", annotations)
		if got := strings.Join(names, " "); got != c.want || len(problems) != c.problems {
			t.Errorf("%s %q: %q, %v; want %q, %d problems", c.namespace, c.annotation, got, problems, c.want, c.problems)
		}
	}
}

func TestTTL(t *testing.T) {
	for text, want := range map[string]uint32{"60": 60, "2m": 120, "0": 30, "soon": 30, "-1": 30} {
		ttl, err := TTL(map[string]string{AnnotationTTL: text}, DefaultTTL)
		if ttl != want || (err != nil) != (want == 30) {
			t.Errorf("%q: %d, %v", text, ttl, err)
		}
	}
	if ttl, err := TTL(nil, time.Minute); ttl != 60 || err != nil {
		t.Errorf("none: %d, %v", ttl, err)
	}
}

func TestZone(t *testing.T) {
	if zone, err := Zone(" Example.LAN. "); zone != "example.lan." || err != nil {
		t.Errorf("%q, %v", zone, err)
	}
	for _, text := range []string{"", ".", "a b", "a..b"} {
		if zone, err := Zone(text); err == nil {
			t.Errorf("%q is taken for the zone %q", text, zone)
		}
	}
}
