package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestVerdicts(t *testing.T) {
	const passed = `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Elapsed":1}
`
	const skipped = `{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: NO KERNEL\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
`
	for _, c := range []struct {
		name, in string
		ok       bool
		says     string
	}{
		{"all passed", passed, true, "1 passed, 0 failed, 0 skipped"},
		{"nothing ran", "", false, "0 passed"},
		{"failed", passed + `{"Action":"output","Package":"p","Test":"TestC","Output":"why\n"}
{"Action":"fail","Package":"p","Test":"TestC"}`, false, "FAIL  p TestC 0.0s\nwhy"},
		{"a package that doesn't build", passed + `{"Action":"fail","Package":"q"}`, false, "FAIL  q"},
		{"broken off", passed + `{"Action":"output","Package":"q","Test":"TestE","Output":"panic: in another goroutine\n"}
{"Action":"fail","Package":"q"}`, false, "BROKE OFF  q TestE\npanic: in another goroutine"},
		{"skipped", passed + skipped, false, "SKIPPED, BUT REQUIRED: p TestB: b_test.go:1: NO KERNEL"},
		{"long", `{"Action":"pass","Package":"p","Test":"TestD/long","Elapsed":7}
{"Action":"pass","Package":"p","Test":"TestD","Elapsed":8}
{"Action":"pass","Package":"p","Elapsed":9}
`, true, "ok    p" + strings.Repeat(" ", 69) + "    9.0s\nlong  p TestD/long" + strings.Repeat(" ", 58) + "    7.0s\n2 passed"},
	} {
		var out bytes.Buffer
		ok := summarise(strings.NewReader(c.in), &out)
		if ok != c.ok || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: %t, and says:\n%s", c.name, ok, out.String())
		}
	}
}
