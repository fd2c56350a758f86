package apiserver

import (
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
)

// KubernetesVersion is the release of the Kubernetes libraries built in, and
// so of the API that is served.
const KubernetesVersion = "v1.37.2+fairway"

// effectiveVersion reports KubernetesVersion, which the libraries don't know
// of themselves.
type effectiveVersion struct{ compatibility.EffectiveVersion }

func (v effectiveVersion) Info() *apimachineryversion.Info {
	info := v.EffectiveVersion.Info()
	info.GitVersion = KubernetesVersion
	return info
}
