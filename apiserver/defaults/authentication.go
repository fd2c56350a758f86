package defaults

import authenticationv1 "k8s.io/api/authentication/v1"

// tokenSeconds is how long a ServiceAccount's token lasts if nobody says.
const tokenSeconds = 3600

// TokenRequest sets how long the token lasts.
func TokenRequest(t *authenticationv1.TokenRequest) {
	if t.Spec.ExpirationSeconds == nil {
		seconds := int64(tokenSeconds)
		t.Spec.ExpirationSeconds = &seconds
	}
}
