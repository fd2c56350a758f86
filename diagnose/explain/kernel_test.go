package explain

import (
	"strings"
	"testing"
)

// TestKernelThatDiffers: the report names the object, doesn't promise any more that
// packets are forwarded, and says what to do next.
func TestKernelThatDiffers(t *testing.T) {
	r := &Report{Answer: "FORWARDED", Outcome: OutcomeForwarded, Service: &ServiceInfo{Namespace: "default", Name: "web"}}
	r.AddKernel(Kernel{Node: "n1", Mode: "ebpf", Objects: []string{"frontend f", "pool p"}})
	if r.ExitCode() != 0 || r.Answer != "FORWARDED" {
		t.Errorf("a kernel as it should be changes the report: %+v", r)
	}
	r.AddKernel(Kernel{Node: "n2", Mode: "nftables", Objects: []string{"element e"}, Differences: []string{"missing element e", "unexpected element x"}})
	var text, rules strings.Builder
	if err := r.WriteText(&text, false); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteRules(&rules); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"BUT THE KERNEL of n2 (nftables) is not as it should be: 1 missing, 1 unexpected\n",
		" kernel       n1 (ebpf)  2 of 2 objects as they should be\n",
		"              missing element e\n", "fairway dump svc/web -n default --node n2",
	} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the text lacks %q:\n%s", part, &text)
		}
	}
	if !strings.Contains(rules.String(), "in the kernel of n1 (ebpf):\n    frontend f\n") {
		t.Errorf("the rules lack the objects:\n%s", &rules)
	}
	if r.ExitCode() != 2 {
		t.Errorf("exit code %d, want 2: it can't be told", r.ExitCode())
	}
}
