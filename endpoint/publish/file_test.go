package publish

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/endpoint/check"
)

func TestParse(t *testing.T) {
	entries, err := Parse("web.yaml", []byte(`
name: web
port: 8080
check: http:/healthz
settings: {interval: 5s, rise: 1, status: 200-299}
weight: 2
zone: a
addresses: [10.77.0.12, fd00::12]
---
name: db
namespace: shop
port: 5432
unit: postgresql.service
`))
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	web, db := entries[0], entries[1]
	if web.Service.String() != "default/web" || web.Protocol != "TCP" || web.Weight != 2 || web.Zone != "a" || len(web.Addresses) != 2 ||
		web.Check.Kind != check.HTTP || web.Check.Interval.String() != "5s" || web.Check.Rise != 1 {
		t.Errorf("web: %+v, check %+v", web, web.Check)
	}
	if db.Service.String() != "shop/db" || db.Check.Kind != check.Unit || db.Check.Command[0] != "postgresql.service" || db.Weight != -1 {
		t.Errorf("db: %+v", db)
	}
}

// TestParseNamesTheField: bad input names field and reason, and the documents
// beside it stand.
func TestParseNamesTheField(t *testing.T) {
	for text, want := range map[string]string{
		"name: Web\nport: 1":                                         `name "Web"`,
		"name: web\nport: 70000":                                     "port 70000",
		"name: web\nport: 1\nprotocol: ICMP":                         `protocol "ICMP"`,
		"name: web\nport: 1\nweight: 101":                            "weight 101",
		"name: web\nport: 1\nzone: a b":                              `zone "a b"`,
		"name: web\nport: 1\naddresses: [127.0.0.1]":                 `addresses "127.0.0.1"`,
		"name: web\nport: 1\naddresses: [\"fe80::1\"]":               `addresses "fe80::1"`,
		"name: web\nport: 1\ncheck: gopher":                          `check "gopher"`,
		"name: web\nport: 1\ncheck: tcp\nunit: a":                    `unit "a"`,
		"name: web\nport: 1\nunit: -a":                               `unit "-a"`,
		"name: web\nport: 1\nchek: tcp":                              "chek",
		"name: web\nport: 1\ncheck: tcp\nsettings: {interval: soon}": "settings.interval",
		"name: web\nport: 1\ncheck: tcp\nsettings: {often: 1}":       "settings.often",
		"name: web\nport: 1\nsettings: {rise: 1}":                    "settings:",
		"name: web\nport: 1\nportName: UPPER":                        "portName",
		"":                                                           "is empty",
	} {
		entries, err := Parse("f.yaml", []byte(text+"\n---\nname: good\nport: 1\n"))
		if text == "" {
			_, err = Parse("f.yaml", nil)
		} else if len(entries) != 1 || entries[0].Service.Name != "good" {
			t.Errorf("%q: the other document gives %v", text, entries)
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "f.yaml") {
			t.Errorf("%q: error %v, want one with %s", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("name: web\nport: 8080\ncheck: http:/\n---\nname: x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, _ := Parse("f", data)
		for _, e := range entries {
			if e.Port == 0 || e.Service.Name == "" {
				t.Errorf("made sense: %+v", e)
			}
		}
	})
}

func TestReadFolder(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "name: web\nport: 1", "b.yml": "name: web\nport: 1", "c.yaml": "port: x", ".d.yaml": "no", "e.txt": "no", "f.yaml": "name: web\nport: 2",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	entries, problems, err := ReadFolder(folder)
	if err != nil || len(entries) != 2 || len(problems) != 2 || !strings.Contains(problems["b.yml"].Error(), "is published by a.yaml already") {
		t.Errorf("%v, %v, %v", entries, problems, err)
	}
	if entries, problems, err := ReadFolder(folder + "/none"); len(entries)+len(problems) > 0 || err != nil {
		t.Errorf("of no folder: %v, %v, %v", entries, problems, err)
	}
}
