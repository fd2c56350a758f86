package endpoints

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestRepack(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"empty", "", ""},
		{"same ports merge", "b|c|80; a||80", "a b|c|80"},
		{"ports of one address merge", "a||80; a||81; b||80", "b||80; a||80 81"},
		{"not ready trumps ready", "a||80; |a|80", "|a|80"},
		{"ready on one port only", "a||80; |a|81", "a||80; |a|81"},
		{"no ports", "a||", "a||"},
		{"same address, other pod", "a@1||80; a@2||80", "a@1 a@2||80"},
	} {
		t.Run(test.name, func(t *testing.T) {
			packed := Repack(parse(test.in))
			if got := render(packed); got != test.want {
				t.Errorf("Repack(%q) = %q, want %q", test.in, got, test.want)
			}
			if again := render(Repack(packed)); again != test.want {
				t.Errorf("repacked again: %q, want %q", again, test.want)
			}
		})
	}
}

func TestTruncate(t *testing.T) {
	for _, test := range []struct {
		limit    int
		in, want string
		cut      bool
	}{
		{4, "a b|c|80; d||81", "a b|c|80; d||81", false},
		{3, "a b|c|80; d||81", "a b||80; d||81", true},
		{2, "a b c d||80; e f g h||81", "a||80; e||81", true},
		{3, "a|b c d|80; e|f g h|81", "a||80; e|f|81", true},
	} {
		subsets := parse(test.in)
		if cut := truncate(subsets, test.limit); cut != test.cut {
			t.Errorf("truncate(%q, %d) = %v, want %v", test.in, test.limit, cut, test.cut)
		}
		if got := render(subsets); got != test.want {
			t.Errorf("truncate(%q, %d) leaves %q, want %q", test.in, test.limit, got, test.want)
		}
	}
}

// parse reads subsets as "ready addresses|not ready ones|ports" between semicolons.
func parse(text string) []corev1.EndpointSubset {
	var subsets []corev1.EndpointSubset
	for part := range strings.SplitSeq(text, ";") {
		fields := strings.Split(strings.TrimSpace(part), "|")
		if len(fields) != 3 {
			continue
		}
		subset := corev1.EndpointSubset{Addresses: addresses(fields[0]), NotReadyAddresses: addresses(fields[1])}
		for _, port := range strings.Fields(fields[2]) {
			var number int32
			if _, err := fmt.Sscan(port, &number); err != nil {
				panic(err)
			}
			subset.Ports = append(subset.Ports, corev1.EndpointPort{Port: number})
		}
		subsets = append(subsets, subset)
	}
	return subsets
}

func addresses(text string) []corev1.EndpointAddress {
	var list []corev1.EndpointAddress
	for _, word := range strings.Fields(text) {
		ip, uid, found := strings.Cut(word, "@")
		a := corev1.EndpointAddress{IP: ip}
		if found {
			a.TargetRef = &corev1.ObjectReference{UID: types.UID(uid)}
		}
		list = append(list, a)
	}
	return list
}

func render(subsets []corev1.EndpointSubset) string {
	var parts []string
	for _, s := range subsets {
		var ports []string
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprint(p.Port))
		}
		parts = append(parts, words(s.Addresses)+"|"+words(s.NotReadyAddresses)+"|"+strings.Join(ports, " "))
	}
	return strings.Join(parts, "; ")
}

func words(list []corev1.EndpointAddress) string {
	var all []string
	for _, a := range list {
		word := a.IP
		if a.TargetRef != nil {
			word += "@" + string(a.TargetRef.UID)
		}
		all = append(all, word)
	}
	return strings.Join(all, " ")
}
