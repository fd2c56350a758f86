package convert

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// The forms in which ingress-nginx' documentation strips a prefix: the path
// /shop(/|$)(.*) with the target /$2, and /shop/(.*) with /$1.
var (
	stripSecond = regexp.MustCompile(`^(/[\w./-]*?)/?\(/\|\$\)\(\.\*\)$`)
	stripFirst  = regexp.MustCompile(`^(/[\w./-]*?)/?\(\.\*\)$`)
	literal     = regexp.MustCompile(`^/[\w./~%-]*$`)
)

// path is what a path of an Ingress matches, and what replaces it.
func (i *one) path(p *networkingv1.HTTPIngressPath) (gatewayv1.HTTPRouteMatch, *gatewayv1.HTTPPathModifier, error) {
	path := cmp.Or(p.Path, "/")
	if target := i.asked.rewriteTarget; target != "" {
		return i.rewritten(path, target)
	}
	kind := gatewayv1.PathMatchPathPrefix
	if !i.asked.regexp && path != "/" && (p.PathType == nil || *p.PathType == networkingv1.PathTypeImplementationSpecific) {
		i.left("path %s: in a route it matches whole elements; with pathType ImplementationSpecific, it matched all that begins with it", path)
	}
	switch {
	case i.asked.regexp && !literal.MatchString(path):
		kind, path = gatewayv1.PathMatchRegularExpression, "(?i:"+path+").*" // ingress-nginx heeds neither case nor the end
	case p.PathType != nil && *p.PathType == networkingv1.PathTypeExact:
		kind = gatewayv1.PathMatchExact
	}
	return matching(kind, path), nil, nil
}

// rewritten is a path that annotation rewrite-target replaces.
func (i *one) rewritten(path, target string) (gatewayv1.HTTPRouteMatch, *gatewayv1.HTTPPathModifier, error) {
	if literal.MatchString(path) && !strings.Contains(target, "$") {
		return matching(gatewayv1.PathMatchPathPrefix, path),
			&gatewayv1.HTTPPathModifier{Type: gatewayv1.FullPathHTTPPathModifier, ReplaceFullPath: &target}, nil
	}
	for group, form := range map[string]*regexp.Regexp{"$2": stripSecond, "$1": stripFirst} {
		parts := form.FindStringSubmatch(path)
		to, found := strings.CutSuffix(target, group)
		if parts == nil || !found || strings.Contains(to, "$") {
			continue
		}
		to = cmp.Or(strings.TrimSuffix(to, "/"), "/")
		prefix := cmp.Or(strings.TrimSuffix(parts[1], "/"), "/")
		if form == stripFirst && prefix != "/" {
			i.left("path %s: a route matches %s itself as well", path, prefix)
		}
		if form == stripSecond && to != "/" {
			i.left("path %s: %s itself becomes %s, without the slash that it got", path, prefix, to)
		}
		return matching(gatewayv1.PathMatchPathPrefix, prefix),
			&gatewayv1.HTTPPathModifier{Type: gatewayv1.PrefixMatchHTTPPathModifier, ReplacePrefixMatch: &to}, nil
	}
	return gatewayv1.HTTPRouteMatch{}, nil, fmt.Errorf("path %s with rewrite-target %s: Gateway API replaces whole paths or prefixes only", path, target)
}

func matching(kind gatewayv1.PathMatchType, path string) gatewayv1.HTTPRouteMatch {
	return gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Type: &kind, Value: &path}}
}

// urlRewrite joins what replaces the path and the host; nil if nothing does.
func (i *one) urlRewrite(path *gatewayv1.HTTPPathModifier) *gatewayv1.HTTPRouteFilter {
	if path == nil && i.asked.hostname == "" || i.asked.redirects {
		return nil
	}
	rewrite := &gatewayv1.HTTPURLRewriteFilter{Path: path}
	if host := gatewayv1.PreciseHostname(i.asked.hostname); host != "" {
		rewrite.Hostname = &host
	}
	return &gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterURLRewrite, URLRewrite: rewrite}
}
