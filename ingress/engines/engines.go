// Package engines is the list of engines that serve Gateways and Ingresses, and
// what each can't do.
package engines

import (
	"fmt"
	"strings"

	"sigs.k8s.io/gateway-api/pkg/features"

	ingress "github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/ingress/engine/haproxy"
)

// The engines.
const (
	Native  = "native"
	HAProxy = "haproxy"
)

// Names are all engines; the first is the one if nothing is said.
var Names = []string{Native, HAProxy}

// Annotation is on a node's Lease and names its engine.
const Annotation = "fairway.dev/engine"

// AnnotationUnserved is on a node's Lease: ports that the engine could not open, by
// name ("namespace/gateway:port"), and why, as JSON.
const AnnotationUnserved = "fairway.dev/unserved"

// Check reports a name that no engine has.
func Check(name string) error {
	for _, n := range Names {
		if n == name {
			return nil
		}
	}
	return fmt.Errorf("engine %q: must be %s", name, strings.Join(Names, " or "))
}

// Lacks is what an engine can't do; nil if it can do all that there is.
func Lacks(name string) *ingress.Lacks {
	if name != HAProxy {
		return nil
	}
	return &ingress.Lacks{
		Ejection: "endpoints that fail get requests nonetheless: haproxy knows no share of them that always does",
		Engine:   HAProxy, Rule: haproxy.Lacking, Pool: haproxy.LackingPool,
		Features: []features.FeatureName{
			features.SupportHTTPRouteRequestMirror, features.SupportHTTPRouteRequestMultipleMirrors, features.SupportHTTPRouteRequestPercentageMirror,
			features.SupportGatewayFrontendClientCertificateValidationInsecureFallback,
			features.SupportHTTPRouteRequestTimeout, features.SupportBackendTLSPolicySANValidation, features.SupportHTTPRouteRetry,
			features.SupportHTTPRouteRetryBackendTimeout, features.SupportHTTPRouteRetryConnectionError, ingress.FeatureRetryCodes,
		},
	}
}
