package compile

import (
	"fmt"
	"net/http"

	"golang.org/x/net/http/httpguts"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// Names of sessions whose rule names none.
const (
	sessionCookie = "FAIRWAYSESSION"
	sessionHeader = "X-Fairway-Session"
)

// session is how a rule keeps clients with an endpoint; nil if it doesn't.
func (r *route) session(s *gatewayv1.SessionPersistence, at string) *model.Affinity {
	if s == nil {
		return nil
	}
	at += ".sessionPersistence"
	name := value(s.SessionName, "")
	if name != "" && !httpguts.ValidHeaderFieldName(name) { // a token, as the name of a cookie is (RFC 6265, 4.1.1)
		r.reject(gatewayv1.RouteReasonUnsupportedValue, fmt.Sprintf("%s.sessionName: %q is no name of a cookie or a header", at, name))
		return nil
	}
	timeout := r.duration(s.AbsoluteTimeout, at+".absoluteTimeout")
	if value(s.Type, gatewayv1.CookieBasedSessionPersistence) == gatewayv1.HeaderBasedSessionPersistence {
		if timeout > 0 {
			r.reject(gatewayv1.RouteReasonUnsupportedValue, at+".absoluteTimeout: sessions by header have no end")
		}
		header := http.CanonicalHeaderKey(or(name, sessionHeader))
		if why := policy.Written(header); why != "" {
			r.reject(gatewayv1.RouteReasonUnsupportedValue, at+".sessionName: "+why)
			return nil
		}
		return &model.Affinity{Header: header}
	}
	a := &model.Affinity{Cookie: or(name, sessionCookie)}
	permanent := s.CookieConfig != nil && value(s.CookieConfig.LifetimeType, gatewayv1.SessionCookieLifetimeType) == gatewayv1.PermanentCookieLifetimeType
	switch {
	case permanent:
		a.MaxAge = max(1, int(timeout.Seconds()))
	case timeout > 0:
		r.reject(gatewayv1.RouteReasonUnsupportedValue, at+".absoluteTimeout: only cookies of lifetimeType Permanent have an end")
	}
	return a
}

// sessionPath is the path of a session's cookie: that of the rule, if all of its matches
// have one, and a cookie can have it.
func sessionPath(matches []gatewayv1.HTTPRouteMatch) string {
	path := ""
	for i := range matches {
		m := matches[i].Path
		if m == nil || value(m.Type, gatewayv1.PathMatchPathPrefix) == gatewayv1.PathMatchRegularExpression {
			return ""
		}
		one := policy.RulePath(value(m.Value, "/"))
		if i > 0 && one != path || !isCookiePath(one) {
			return ""
		}
		path = one
	}
	return path
}
