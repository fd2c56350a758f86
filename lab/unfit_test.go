//go:build drain

package lab_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/lab"
)

// TestWhoMayNotAnnounce: a node that the autoscaler is about to delete, one that is excluded,
// one without network and one with a MetalLB speaker announce nothing, neither to routers nor
// on the link, say why, and announce again afterwards. Clients are answered all the time.
func TestWhoMayNotAnnounce(t *testing.T) {
	c := config("unfit")
	c.Mode, c.Router = "nftables", lab.RouterBird
	c.LoadBalancerRanges = []string{"10.99.0.1-10.99.0.9", "fd00:99::1-fd00:99::9"}
	up(t, c)
	exposeHello(t, c.Name)
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"10.99.0.1", "fd00:99::1"}
	ways := func(what string, n int) {
		t.Helper()
		for _, host := range hosts {
			eventually(t, what+": so many nodes announce "+host, func() bool { return nextHops(t, c.Name, host) == n })
		}
	}
	ways("all is well", 2)
	stop := keepConnecting(t, c.Name, hosts)
	for _, reason := range reasonsNotToAnnounce(t, client) {
		t.Run(reason.name, func(t *testing.T) {
			reason.begin()
			ways(reason.name, 1)
			eventually(t, "node1 says why, and announces nothing on the link", func() bool {
				why, announces := saysOf(c.Name, "node1", hosts)
				return strings.Contains(why, reason.says) && !announces
			})
			reason.end()
			ways("no longer", 2)
		})
	}
	stop()
}

// reasonNot has node1 announce nothing.
type reasonNot struct {
	name, says string
	begin, end func()
}

func reasonsNotToAnnounce(t *testing.T, client kubernetes.Interface) []reasonNot {
	patch := func(subresource, body string) func() {
		var subresources []string
		if subresource != "" {
			subresources = []string{subresource}
		}
		return func() {
			t.Helper()
			if _, err := client.CoreV1().Nodes().Patch(t.Context(), "node1", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, subresources...); err != nil {
				t.Fatal(err)
			}
		}
	}
	speaker := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "speaker-x", Labels: map[string]string{"app": "metallb", "component": "speaker"}},
		Spec:       corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Name: "speaker", Image: "echo"}}},
	}
	pods := client.CoreV1().Pods(v1beta1.DefaultNamespace)
	return []reasonNot{
		{"about to be deleted", "about to be deleted",
			patch("", `{"spec":{"taints":[{"key":"ToBeDeletedByClusterAutoscaler","value":"1700000000","effect":"NoSchedule"}]}}`),
			patch("", `{"spec":{"taints":null}}`)},
		{"excluded", corev1.LabelNodeExcludeBalancers,
			patch("", `{"metadata":{"labels":{"`+corev1.LabelNodeExcludeBalancers+`":""}}}`),
			patch("", `{"metadata":{"labels":{"`+corev1.LabelNodeExcludeBalancers+`":null}}}`)},
		{"without network", "NetworkUnavailable",
			patch("status", `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"True"}]}}`),
			patch("status", `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False"}]}}`)},
		{"beside a MetalLB speaker", "MetalLB speaker",
			func() {
				if _, err := pods.Create(t.Context(), speaker, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			},
			func() {
				if err := pods.Delete(t.Context(), speaker.Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}},
	}
}

// saysOf is why a node doesn't announce addresses, and whether it does.
func saysOf(name, node string, hosts []string) (why string, announces bool) {
	out, _, code := fairway("lab", "exec", "--name", name, node, "--", "curl", "-sS", "-m", "2", "http://127.0.0.1:10249/announce")
	var report announce.Report
	if code != 0 || json.Unmarshal([]byte(out), &report) != nil {
		return "", true
	}
	for _, a := range report.Addresses {
		for _, host := range hosts {
			if a.Address.String() == host {
				why += a.WhyNot + "\n"
				announces = announces || !a.Since.IsZero()
			}
		}
	}
	return why, announces
}
