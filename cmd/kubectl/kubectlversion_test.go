//go:build !agentonly

package kubectl

import (
	"testing"

	"k8s.io/component-base/version"

	"github.com/fairway-net/fairway/apiserver"
)

// TestKubectlVersion: the library's version is still kept where kubectl sets it.
func TestKubectlVersion(t *testing.T) {
	before := kubectlVersion.Load()
	defer kubectlVersion.Store(before)
	kubectlVersion.Store(apiserver.KubernetesVersion)
	if got := version.Get().GitVersion; got != apiserver.KubernetesVersion {
		t.Errorf("the library has version %q: is it kept elsewhere now?", got)
	}
}
