package compile

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// readAuth reads the URL that decides whether a request is let in.
func readAuth(r *reading, t string) error {
	c, o, a := r.compiler, r.o, r.a
	get := func(name string) string { return strings.TrimSpace(o.Annotations[nginx+"auth-"+name]) }
	auth := &model.Auth{URL: strings.TrimSpace(t), Method: strings.ToUpper(or(get("method"), http.MethodGet)), SignIn: get("signin"), Param: or(get("signin-redirect-param"), "rd"), Cookies: get("always-set-cookie") == "true"}
	if !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost}, auth.Method) {
		return fmt.Errorf("auth-method: %q: must be GET, HEAD or POST", auth.Method)
	}
	for name := range strings.SplitSeq(get("response-headers"), ",") {
		switch name = http.CanonicalHeaderKey(strings.TrimSpace(name)); {
		case name == "":
		case !httpguts.ValidHeaderFieldName(name) || name == "Host" || policy.Written(name) != "":
			return fmt.Errorf("auth-response-headers: %q can't be handed on", name)
		default:
			auth.Headers = append(auth.Headers, name)
		}
	}
	if strings.ContainsFunc(auth.SignIn, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return fmt.Errorf("auth-signin: %q is no address to send clients to", auth.SignIn)
	}
	// The host of a path stands for $host, which is checked where the path is.
	u, err := url.Parse(strings.ReplaceAll(auth.URL, "$host", "host.invalid"))
	switch {
	case err != nil:
		return err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" || strings.Contains(u.String(), "$"):
		return fmt.Errorf("%q: must be an http or https address, in which $host is the only variable", t)
	case net.ParseIP(u.Hostname()) == nil && !isHostname(strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))):
		return fmt.Errorf("%q: %q is no host", t, u.Hostname())
	}
	if to := get("request-redirect"); to != "" {
		if err := model.CheckVariables(to); err != nil {
			return fmt.Errorf("auth-request-redirect: %w", err)
		}
		auth.Request = append(auth.Request, model.Header{Name: "X-Auth-Request-Redirect", Value: to})
	}
	if name := get("proxy-set-headers"); name != "" {
		list, err := r.headersOf(name)
		if err != nil {
			return fmt.Errorf("auth-proxy-set-headers: %w", err)
		}
		for _, h := range list {
			if err := model.CheckVariables(h.Value); err != nil {
				return fmt.Errorf("auth-proxy-set-headers: %w", err)
			}
		}
		auth.Request = append(auth.Request, list...)
	}
	if auth.Pool, err = c.authPool(o, a, u); err != nil {
		return err
	}
	a.base.Auth = auth
	return nil
}

// authPool is the pool of a Service by its name in DNS; "" if the address is none's.
func (c *compiler) authPool(o *networkingv1.Ingress, a *annotations, u *url.URL) (string, error) {
	service, found := serviceNamed(u)
	if !found {
		return "", nil
	}
	number := int32(80)
	if u.Scheme == "https" {
		number = 443
	}
	if text := u.Port(); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return "", fmt.Errorf("port %q: %w", text, err)
		}
		number = int32(n)
	}
	name, err := c.servicePool(o, service, func(p *corev1.ServicePort) bool { return p.Port == number })
	if err != nil || u.Scheme != "https" {
		return name, err
	}
	return c.adapted(name, &annotations{protocol: "HTTPS", suffix: "https"}), nil
}

// serviceNamed is the Service whose name in DNS an address has; false if it has none's.
func serviceNamed(u *url.URL) (types.NamespacedName, bool) {
	labels := strings.Split(strings.TrimSuffix(strings.ToLower(u.Hostname()), ".cluster.local"), ".")
	if len(labels) != 3 || labels[2] != "svc" {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: labels[1], Name: labels[0]}, true
}

// servicePool is the pool of the first port of a Service that will do.
func (c *compiler) servicePool(o *networkingv1.Ingress, name types.NamespacedName, will func(*corev1.ServicePort) bool) (string, error) {
	c.refs.service(name)
	s := c.Services[name]
	switch {
	case s == nil:
		return "", fmt.Errorf("there is no Service %s", name)
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return "", fmt.Errorf("Service %s is of type ExternalName, which could lead anywhere", name) //nolint:staticcheck // a kind's name
	}
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; will(p) {
			pool, _, message := c.pool(&route{kind: "Ingress", object: o}, nil, name, p)
			if message != "" {
				return "", errors.New(message)
			}
			return pool, nil
		}
	}
	return "", fmt.Errorf("Service %s has no such port", name) //nolint:staticcheck // a kind's name
}

// readErrors reads which answers are not handed on.
func readErrors(r *reading, t string) error {
	a := r.a
	list := &model.Errors{}
	for text := range strings.SplitSeq(t, ",") {
		code, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || code < 300 || code > 599 {
			return fmt.Errorf("%q: must be codes from 300 to 599", t)
		}
		list.Codes = append(list.Codes, code)
	}
	a.base.Errors = list
	return nil
}

// readFallback reads which Service answers where there is no endpoint.
func readFallback(r *reading, t string) error {
	c, o, a := r.compiler, r.o, r.a
	var err error
	a.base.Fallback, err = c.servicePool(o, types.NamespacedName{Namespace: o.Namespace, Name: t}, func(*corev1.ServicePort) bool { return true })
	return err
}

// settleErrors has the default backend answer in the place of others.
func (c *compiler) settleErrors(o *networkingv1.Ingress, a *annotations) {
	if a.base.Errors == nil {
		return
	}
	if a.base.Fallback == "" {
		c.problem("Ingress", nameOf(o), ReasonInvalid, "annotation "+nginx+"custom-http-errors: the annotation default-backend has to say which Service answers")
		a.base.Errors = nil
		return
	}
	a.base.Errors.Pool = a.base.Fallback
}

// bind makes what an action says of its path that of the path's host and Service. It says what of that can't be.
func bind(action *model.Action, o *networkingv1.Ingress, host string, p *networkingv1.HTTPIngressPath) (wrong string) {
	backend := &p.Backend
	if action.Affinity != nil && action.Affinity.Path == "" && p.Path != "/" && !strings.ContainsAny(p.Path, `\.+*?()|[]{}^$`) && isCookiePath(p.Path) {
		own := *action.Affinity // each path has its own cookie
		own.Path, action.Affinity = p.Path, &own
	}
	if auth := action.Auth; auth != nil && strings.Contains(auth.URL, "$host") {
		if host == "" || strings.Contains(host, "*") {
			action.Invalid = "annotation " + nginx + "auth-url: $host is any host here, of which nobody knows who answers"
			return action.Invalid
		}
		own := *auth
		own.URL = strings.ReplaceAll(auth.URL, "$host", host)
		action.Auth = &own
	}
	if action.Errors != nil {
		own := *action.Errors
		own.Header = []model.Header{{Name: "X-Namespace", Value: o.Namespace}, {Name: "X-Ingress-Name", Value: o.Name}}
		if s := backend.Service; s != nil {
			port := s.Port.Name
			if port == "" {
				port = strconv.Itoa(int(s.Port.Number))
			}
			own.Header = append(own.Header, model.Header{Name: "X-Service-Name", Value: s.Name}, model.Header{Name: "X-Service-Port", Value: port})
		}
		action.Errors = &own
	}
	return ""
}
