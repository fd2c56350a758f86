package rights

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// TestPeopleDontWriteEndpoints: who works in a namespace reads its endpoints and doesn't write them, whichever role
// brings it, by itself or by what others add to it (CVE-2021-25740).
func TestPeopleDontWriteEndpoints(t *testing.T) {
	reads := map[string]bool{}
	for _, role := range ClusterRoles() {
		ofPeople := slices.Contains([]string{"admin", "edit", "view"}, role.Name)
		for label := range role.Labels {
			ofPeople = ofPeople || strings.HasPrefix(label, aggregateLabel)
		}
		if !ofPeople {
			continue
		}
		for _, rule := range role.Rules {
			for _, of := range []struct{ group, resource string }{{"", "endpoints"}, {"discovery.k8s.io", "endpointslices"}} {
				if !covers(rule.APIGroups, of.group) || !covers(rule.Resources, of.resource) {
					continue
				}
				for _, verb := range append(slices.Clone(write), rbacv1.VerbAll) {
					if slices.Contains(rule.Verbs, verb) {
						t.Errorf("%s may %s %s", role.Name, verb, of.resource)
					}
				}
				reads[role.Name+" "+of.resource] = true
			}
		}
	}
	for _, want := range []string{"admin endpoints", "edit endpointslices", "view endpoints", "view endpointslices"} {
		if !reads[want] {
			t.Errorf("%s: may not be read", want)
		}
	}
}

func covers(list []string, one string) bool {
	return slices.Contains(list, one) || slices.Contains(list, "*")
}
