package apiserver

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRangesOf: what is given out comes first, and the server's own range and what
// can't be read are left to others.
func TestRangesOf(t *testing.T) {
	now, ready := metav1.Now(), []metav1.Condition{{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue}}
	cidr := func(name string, deleted *metav1.Time, conditions []metav1.Condition, cidrs ...string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: name, DeletionTimestamp: deleted},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: cidrs}, Status: networkingv1.ServiceCIDRStatus{Conditions: conditions},
		}
	}
	var got []string
	for _, r := range rangesOf([]*networkingv1.ServiceCIDR{
		cidr("kubernetes", nil, ready, "10.96.0.0/16"),
		cidr("a-leaving", &now, ready, "10.97.0.0/24"),
		cidr("b-new", nil, nil, "10.98.0.0/24"),
		cidr("c-ready", nil, ready, "10.97.0.0/24", "fd00:97::/112"),
	}) {
		state := " open"
		if r.Closed {
			state = " closed"
		}
		got = append(got, r.Prefix.String()+state)
	}
	const want = "10.97.0.0/24 open, fd00:97::/112 open, 10.97.0.0/24 closed, 10.98.0.0/24 closed"
	if strings.Join(got, ", ") != want {
		t.Errorf("the ranges are %v, want %s", got, want)
	}
}

// TestServiceCIDRErrors: errors of ranges and addresses name the field, and the
// server's own range stays.
func TestServiceCIDRErrors(t *testing.T) {
	t.Parallel()
	s := start(t, testConfig(t))
	const cidr = "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: more}\nspec: {cidrs: [%]}\n"
	for cidrs, reason := range map[string]string{
		"10.97.0.1/24":               "spec.cidrs[0]",
		"10.97.0.0/31":               "is too small",
		"fd00::/32":                  "is too large",
		"10.97.0.0/24, 10.98.0.0/24": "may specify no more than one IP for each IP family",
	} {
		refuses(t, s, strings.Replace(cidr, "%", `"`+strings.ReplaceAll(cidrs, ", ", `", "`)+`"`, 1), reason)
	}
	const address = "apiVersion: networking.k8s.io/v1\nkind: IPAddress\nmetadata: {name: %}\nspec: {parentRef: {resource: services, name: web}}\n"
	refuses(t, s, strings.Replace(address, "%", `"fd00:0::1"`, 1), `must be in canonical form ("fd00::1")`)
	refuses(t, s, strings.Replace(address, "%", "10.96.0.300", 1), "must be a valid IP address")
	kubectl(t, s, strings.Replace(address, "%", "192.0.2.1", 1), "apply", "-f", "-")
	contains(t, kubectl(t, s, "", "get", "ip"), "services/web")
	out, err := tryKubectl(t, s, "", "delete", "servicecidr", "kubernetes")
	if err == nil || !strings.Contains(out, "it holds the server's own ranges") {
		t.Errorf("deleting the server's own range: %v\n%s", err, out)
	}
}
