package iprange

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func ranges(t *testing.T, texts ...string) []Range {
	t.Helper()
	var list []Range
	for _, text := range texts {
		r, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

func TestRanges(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.0/24":                "192.0.2.0-192.0.2.255 256",
		"192.0.2.77/24":               "192.0.2.0-192.0.2.255 256",
		" 192.0.2.10 - 192.0.2.20 ":   "192.0.2.10-192.0.2.20 11",
		"192.0.2.250-192.0.3.5":       "192.0.2.250-192.0.3.5 12",
		"2001:db8::/120":              "2001:db8::-2001:db8::ff 256",
		"::/0":                        "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 9223372036854775807",
		"::ffff:192.0.2.0/120":        "192.0.2.0-192.0.2.255 256",
		"192.0.2.20-192.0.2.10":       "ends before it begins",
		"192.0.2.1-2001:db8::1":       "begins and ends in different IP families",
		"192.0.2.1":                   "neither a CIDR",
		"192.0.2.0/33":                "neither a CIDR",
		"fe80::1%eth0-fe80::2%eth0":   "addresses with a zone",
		"192.0.2.1-":                  `"" is not an IP address`,
		"example-2001:db8::1":         `"example" is not an IP address`,
		"255.255.255.255/32":          "255.255.255.255-255.255.255.255 1",
		"0.0.0.0-255.255.255.255":     "0.0.0.0-255.255.255.255 4294967296",
		"192.0.2.0/24,192.0.3.0/24":   "neither a CIDR",
		"192.0.2.0-192.0.2.5-1.2.3.4": "is not an IP address",
	} {
		r, err := Parse(text)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(r, " ", r.Size())
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestWithout(t *testing.T) {
	for _, test := range []struct{ from, take, want []string }{
		{[]string{"192.0.2.0/29"}, []string{"192.0.2.3-192.0.2.3"}, []string{"192.0.2.0-192.0.2.2", "192.0.2.4-192.0.2.7"}},
		{[]string{"192.0.2.0/29"}, []string{"192.0.2.0/30"}, []string{"192.0.2.4-192.0.2.7"}},
		{[]string{"192.0.2.0/29"}, []string{"192.0.2.6-192.0.9.9"}, []string{"192.0.2.0-192.0.2.5"}},
		{[]string{"192.0.2.0/29"}, []string{"192.0.0.0/16"}, nil},
		{[]string{"192.0.2.0/29"}, []string{"::/0", "10.0.0.0/8"}, []string{"192.0.2.0/29"}},
	} {
		if got := Without(ranges(t, test.from...), ranges(t, test.take...)); !slices.Equal(got, ranges(t, test.want...)) {
			t.Errorf("%v without %v is %v", test.from, test.take, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"192.0.2.0/24", "192.0.2.1-192.0.2.9", "::/0", "::1-::2", "-", "/"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		if !r.Contains(r.From) || !r.Contains(r.To) || r.Size() < 1 {
			t.Errorf("%q is read as %v of size %d", text, r, r.Size())
		}
	})
}
