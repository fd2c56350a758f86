// Package outside decides which names load balancer addresses have outside the
// cluster, in a zone of the user's own. It is pure: DNS served here and updates of
// other servers follow the same rules.
package outside

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// The annotations of external-dns that are understood.
const (
	AnnotationHostname = "external-dns.alpha.kubernetes.io/hostname"
	AnnotationTTL      = "external-dns.alpha.kubernetes.io/ttl"
)

// DefaultTTL is how long clients may keep a record.
const DefaultTTL = 30 * time.Second

// Zone makes a zone of a flag's text: lower case, with the final dot.
func Zone(text string) (string, error) {
	zone := strings.ToLower(strings.Trim(strings.TrimSpace(text), ".")) + "."
	if !valid(zone) {
		return "", fmt.Errorf("%q: must be a DNS zone, such as example.lan", text)
	}
	return zone, nil
}

// Names are the names of a Service in a zone, with the final dot: those of the
// annotation, or NAME in namespace default and NAME.NAMESPACE in others. Each
// problem names the annotation; names of other zones are somebody else's, and no problem.
func Names(zone, namespace, name string, annotations map[string]string) (names []string, problems []error) {
	text, given := annotations[AnnotationHostname]
	if !given {
		if namespace != "default" {
			name += "." + namespace
		}
		return []string{name + "." + zone}, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		n := strings.ToLower(strings.TrimSuffix(strings.TrimSpace(item), ".")) + "."
		switch {
		case !valid(n):
			problems = append(problems, fmt.Errorf("annotation %s: %q is not a host name", AnnotationHostname, strings.TrimSpace(item)))
		case dns.IsSubDomain(zone, n) && !slices.Contains(names, n):
			names = append(names, n)
		}
	}
	return names, problems
}

// TTL is a Service's own time to live, in seconds, or the default. A problem names the annotation.
func TTL(annotations map[string]string, otherwise time.Duration) (uint32, error) {
	text, given := annotations[AnnotationTTL]
	if !given {
		return uint32(otherwise / time.Second), nil
	}
	if n, err := strconv.ParseUint(text, 10, 31); err == nil && n > 0 {
		return uint32(n), nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= time.Second && d < 1<<31*time.Second {
		return uint32(d / time.Second), nil
	}
	return uint32(otherwise / time.Second), fmt.Errorf("annotation %s: %q is not a number of seconds or a duration", AnnotationTTL, text)
}

// valid accepts host names, also with * as their first label.
func valid(name string) bool {
	if _, ok := dns.IsDomainName(name); !ok || name == "." {
		return false
	}
	rest := strings.TrimPrefix(name, "*.")
	for label := range strings.SplitSeq(strings.TrimSuffix(rest, "."), ".") {
		if label == "" || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") || strings.ContainsFunc(label, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
		}) {
			return false
		}
	}
	return true
}
