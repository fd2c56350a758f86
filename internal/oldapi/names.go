package oldapi

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	innerCapital = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	notOfLabel   = regexp.MustCompile(`[^a-z0-9]+`)
)

// label makes a DNS label of a name, as those of Services and of their ports must be:
// HelloService becomes hello-service. What is one stays.
func label(name string) string {
	spaced := innerCapital.ReplaceAllString(name, "$1-$2")
	return strings.Trim(notOfLabel.ReplaceAllString(strings.ToLower(spaced), "-"), "-")
}

// serviceNames gives a Service and its ports names that the API takes, and says
// which it changed. Ingresses that refer to it are changed alike.
func serviceNames(object map[string]any) []string {
	var notes []string
	rename := func(holder map[string]any, what string) {
		name, _ := holder["name"].(string)
		if now := label(name); now != "" && now != name {
			holder["name"] = now
			notes = append(notes, fmt.Sprintf("%s %q is %q here: a name is a DNS label, of small letters, digits and dashes", what, name, now))
		}
	}
	if metadata := child(object, "metadata"); metadata != nil {
		rename(metadata, "Service")
	}
	ports, _ := child(object, "spec")["ports"].([]any)
	for i := range ports {
		if port, ok := ports[i].(map[string]any); ok {
			rename(port, fmt.Sprintf("spec.ports[%d].name", i))
		}
	}
	return notes
}
