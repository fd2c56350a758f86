//go:build !agentonly

package requests

import "testing"

// TestUnserved: who applies what isn't served is told what to do.
func TestUnserved(t *testing.T) {
	const begin = `error: resource mapping not found for name: "x" namespace: "" from "f": `
	const end = "\nensure CRDs are installed first"
	for message, want := range map[string]string{
		`no matches for kind "Deployment" in version "extensions/v1beta1"` + end:          "extensions/v1beta1 Deployment is apps/v1 today: write it in that form with fairway kubectl convert -f FILE",
		`no matches for kind "HorizontalPodAutoscaler" in version "autoscaling/v2"` + end: "fairway does not serve HorizontalPodAutoscaler (autoscaling/v2): nothing here would act on it",
		`no matches for kind "Gate" in version "example.com/v1"` + end:                    `no matches for kind "Gate" in version "example.com/v1"` + end,
	} {
		if got := ExplainUnserved(begin + message); got != begin+want {
			t.Errorf("%q becomes %q", message, got)
		}
	}
}
