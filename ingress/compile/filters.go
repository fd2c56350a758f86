package compile

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/http/httpguts"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// filters are a list of filters, read.
type filters struct {
	request, response model.HeaderEdit
	redirect          *model.Redirect
	rewrite           *model.Rewrite
	mirrors           []model.Mirror
	cors              *model.CORS
	invalid           string
}

// httpFilters reads filters. One that isn't known makes requests fail, as the
// API has it: leaving it out could let somebody in.
func (c *compiler) httpFilters(r *route, g *gateway, list []gatewayv1.HTTPRouteFilter, at string) filters {
	var out filters
	for i := range list {
		f := &list[i]
		at := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case f.Type == gatewayv1.HTTPRouteFilterRequestHeaderModifier && f.RequestHeaderModifier != nil:
			out.edit(r, &out.request, f.RequestHeaderModifier, at+".requestHeaderModifier")
		case f.Type == gatewayv1.HTTPRouteFilterResponseHeaderModifier && f.ResponseHeaderModifier != nil:
			out.edit(r, &out.response, f.ResponseHeaderModifier, at+".responseHeaderModifier")
		case f.Type == gatewayv1.HTTPRouteFilterRequestRedirect && f.RequestRedirect != nil:
			out.redirect = redirect(f.RequestRedirect)
			out.plain(r, f.RequestRedirect.Path, at+".requestRedirect.path")
		case f.Type == gatewayv1.HTTPRouteFilterURLRewrite && f.URLRewrite != nil:
			out.rewrite = &model.Rewrite{Host: string(value(f.URLRewrite.Hostname, "")), Path: pathEdit(f.URLRewrite.Path)}
			out.plain(r, f.URLRewrite.Path, at+".urlRewrite.path")
		case f.Type == gatewayv1.HTTPRouteFilterRequestMirror && f.RequestMirror != nil:
			if m, ok := c.mirror(r, g, f.RequestMirror, at); ok {
				out.mirrors = append(out.mirrors, m)
			}
		case f.Type == gatewayv1.HTTPRouteFilterCORS && f.CORS != nil:
			out.cors = cors(f.CORS)
		default:
			out.invalid = fmt.Sprintf("%s: filter %s is not supported", at, f.Type)
			if f.Type == gatewayv1.HTTPRouteFilterExtensionRef {
				r.unresolved(gatewayv1.RouteReasonInvalidKind, out.invalid)
			} else {
				r.reject(gatewayv1.RouteReasonUnsupportedValue, out.invalid)
			}
		}
	}
	return out
}

// edit adds changes of headers. One of a header that is not the route's to write makes
// requests fail: the author would be able to say where an answer ends.
func (out *filters) edit(r *route, e *model.HeaderEdit, f *gatewayv1.HTTPHeaderFilter, at string) {
	for _, h := range f.Set {
		e.Set = append(e.Set, model.Header{Name: http.CanonicalHeaderKey(string(h.Name)), Value: h.Value})
	}
	for _, h := range f.Add {
		e.Add = append(e.Add, model.Header{Name: http.CanonicalHeaderKey(string(h.Name)), Value: h.Value})
	}
	for _, name := range f.Remove {
		e.Remove = append(e.Remove, http.CanonicalHeaderKey(name))
	}
	for _, name := range e.Names() {
		if why := policy.Written(name); why != "" {
			out.refuse(r, at+": "+why)
		}
	}
	for _, h := range slices.Concat(f.Set, f.Add) {
		if !httpguts.ValidHeaderFieldValue(h.Value) {
			out.refuse(r, fmt.Sprintf("%s: the value of header %s is more than a line of text", at, h.Name))
		}
	}
}

// refuse makes requests fail, and says why.
func (out *filters) refuse(r *route, why string) {
	out.invalid = why
	r.reject(gatewayv1.RouteReasonUnsupportedValue, why)
}

// plain refuses a path that would end the line in which it is sent.
func (out *filters) plain(r *route, p *gatewayv1.HTTPPathModifier, at string) {
	if p != nil && strings.ContainsFunc(value(p.ReplaceFullPath, "")+value(p.ReplacePrefixMatch, ""), unicode.IsControl) {
		out.refuse(r, at+": a path has no control characters")
	}
}

func redirect(f *gatewayv1.HTTPRequestRedirectFilter) *model.Redirect {
	return &model.Redirect{
		Scheme: value(f.Scheme, ""), Host: string(value(f.Hostname, "")), Path: pathEdit(f.Path),
		Port: uint16(value(f.Port, 0)), Status: value(f.StatusCode, http.StatusFound),
	}
}

func pathEdit(p *gatewayv1.HTTPPathModifier) *model.PathEdit {
	if p == nil {
		return nil
	}
	if p.Type == gatewayv1.FullPathHTTPPathModifier {
		return &model.PathEdit{Full: true, Value: value(p.ReplaceFullPath, "/")}
	}
	return &model.PathEdit{Value: value(p.ReplacePrefixMatch, "/")}
}

func (c *compiler) mirror(r *route, g *gateway, f *gatewayv1.HTTPRequestMirrorFilter, at string) (model.Mirror, bool) {
	b := c.backend(r, g, &gatewayv1.BackendRef{BackendObjectReference: f.BackendRef}, at+".requestMirror.backendRef")
	m := model.Mirror{Pool: b.Pool, Numerator: 100, Denominator: 100}
	switch {
	case f.Fraction != nil:
		m.Numerator, m.Denominator = int(f.Fraction.Numerator), int(value(f.Fraction.Denominator, 100))
	case f.Percent != nil:
		m.Numerator = int(*f.Percent)
	}
	return m, b.Invalid == "" && m.Denominator > 0
}

func cors(f *gatewayv1.HTTPCORSFilter) *model.CORS {
	out := &model.CORS{Credentials: value(f.AllowCredentials, false), MaxAge: int(f.MaxAge)}
	for _, o := range f.AllowOrigins {
		out.Origins = append(out.Origins, string(o))
	}
	for _, m := range f.AllowMethods {
		out.Methods = append(out.Methods, string(m))
	}
	for _, h := range f.AllowHeaders {
		out.Headers = append(out.Headers, string(h))
	}
	for _, h := range f.ExposeHeaders {
		out.Expose = append(out.Expose, string(h))
	}
	return out
}
