package lab

import "testing"

// TestNameOf: commands find the lab by KUBECONFIG, if that is a lab's.
func TestNameOf(t *testing.T) {
	for kubeconfig, want := range map[string]string{
		Kubeconfig("newl"):                    "newl",
		Kubeconfig(DefaultName):               DefaultName,
		"":                                    DefaultName,
		"/root/.kube/config":                  DefaultName,
		"/home/newl/kubeconfig":               DefaultName,
		Kubeconfig("a") + ":/root/.kube/conf": DefaultName,
	} {
		if got := NameOf(kubeconfig); got != want {
			t.Errorf("%q is of %q, want %q", kubeconfig, got, want)
		}
	}
}
