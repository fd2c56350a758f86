package compile

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// Features are the names of what is supported, sorted, for the status of
// GatewayClasses.
func Features(lacks *Lacks) []gatewayv1.SupportedFeature {
	var list []gatewayv1.SupportedFeature
	for _, f := range supported {
		if lacks.supports(f) {
			list = append(list, gatewayv1.SupportedFeature{Name: gatewayv1.FeatureName(f)})
		}
	}
	slices.SortFunc(list, func(a, b gatewayv1.SupportedFeature) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list
}

var supported = []features.FeatureName{
	features.SupportGateway,
	features.SupportGatewayPort8080,
	features.SupportGatewayStaticAddresses,
	features.SupportGatewayHTTPListenerIsolation,
	features.SupportGatewayInfrastructure,
	features.SupportGatewayAddressEmpty,
	features.SupportGatewayBackendClientCertificate,
	features.SupportGatewayFrontendClientCertificateValidation,
	features.SupportGatewayFrontendClientCertificateValidationInsecureFallback,
	features.SupportGatewayHTTPSListenerDetectMisdirectedRequests,
	features.SupportListenerSet,
	features.SupportReferenceGrant,
	features.SupportBackendTLSPolicy,
	features.SupportBackendTLSPolicySANValidation,
	features.SupportHTTPRoute,
	features.SupportHTTPRouteDestinationPortMatching,
	features.SupportHTTPRouteBackendRequestHeaderModification,
	features.SupportHTTPRouteQueryParamMatching,
	features.SupportHTTPRouteMethodMatching,
	features.SupportHTTPRouteResponseHeaderModification,
	features.SupportHTTPRoutePortRedirect,
	features.SupportHTTPRouteSchemeRedirect,
	features.SupportHTTPRoutePathRedirect,
	features.SupportHTTPRouteHostRewrite,
	features.SupportHTTPRoutePathRewrite,
	features.SupportHTTPRouteRequestMirror,
	features.SupportHTTPRouteRequestMultipleMirrors,
	features.SupportHTTPRouteRequestPercentageMirror,
	features.SupportHTTPRouteRequestTimeout,
	features.SupportHTTPRouteBackendTimeout,
	features.SupportHTTPRouteParentRefPort,
	features.SupportHTTPRouteBackendProtocolH2C,
	features.SupportHTTPRouteBackendProtocolWebSocket,
	features.SupportHTTPRouteNamedRouteRule,
	features.SupportHTTPRouteCORS,
	features.SupportHTTPRoute303RedirectStatusCode,
	features.SupportHTTPRoute307RedirectStatusCode,
	features.SupportHTTPRoute308RedirectStatusCode,
	features.SupportHTTPRouteRetry,
	features.SupportHTTPRouteRetryBackendTimeout,
	features.SupportHTTPRouteRetryConnectionError,
	features.SupportGRPCRoute,
	features.SupportGRPCRouteNamedRouteRule,
	features.SupportTLSRoute,
	features.SupportTLSRouteModeTerminate,
	features.SupportTLSRouteModeMixed,
	features.SupportTCPRoute,
	features.SupportUDPRoute,
	// Gateway API 1.7's, whose library needs Go 1.27.
	FeatureHostnamePrecedence,
	FeatureRetryCodes,
	"HTTPRouteBackendURLRewrite",
	"GRPCRouteRequestHeaderModifier",
}

// Features that Gateway API has since 1.7.
const (
	FeatureHostnamePrecedence features.FeatureName = "GatewayRouteHostnameIntersectionPrecedence"
	FeatureRetryCodes         features.FeatureName = "HTTPRouteRetryCodes" // HTTPRouteRetry before
)

// ours returns the classes that choose Fairway, and settles their conditions.
func (c *compiler) ours() map[string]bool {
	classes := map[string]bool{}
	for _, class := range c.Classes {
		if class.Spec.ControllerName != Controller {
			continue
		}
		accepted, reason, message := true, gatewayv1.GatewayClassReasonAccepted, "Fairway serves this class"
		if class.Spec.ParametersRef != nil {
			accepted, reason, message = false, gatewayv1.GatewayClassReasonInvalidParameters, "spec.parametersRef: Fairway has no parameters"
		}
		c.out.Classes[class.Name] = []metav1.Condition{
			condition(gatewayv1.GatewayClassConditionStatusAccepted, accepted, reason, class.Generation, message),
			condition(gatewayv1.GatewayClassConditionStatusSupportedVersion, true, gatewayv1.GatewayClassReasonSupportedVersion, class.Generation, ""),
		}
		classes[class.Name] = accepted
	}
	return classes
}
