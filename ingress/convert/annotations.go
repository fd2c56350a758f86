package convert

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	nginx = "nginx.ingress.kubernetes.io/"
)

// asked is what annotations ask for, as far as it has a form.
type asked struct {
	sslRedirect, forceRedirect, regexp bool
	rewriteTarget, hostname            string
	redirects                          bool // filters answer; no backend does
	filters                            []gatewayv1.HTTPRouteFilter
	annotations                        []string // of others, that routes keep
}

// protect are annotations without which somebody gets in who must not: an
// Ingress that has one isn't converted.
var protect = []string{"auth-", "whitelist-source-range", "allowlist-source-range", "denylist-source-range"}

// elsewhere says what takes the place of annotations that have no form in routes.
var elsewhere = map[string]string{
	"proxy-body-size":       "routes have no limit of bodies",
	"proxy-send-timeout":    "routes have no time between two writes",
	"proxy-read-timeout":    "it is the longest pause of an answer, and backendRequest of a route is the time for the whole of it",
	"proxy-connect-timeout": "routes have no time for connecting",
	"limit-rps":             "routes have no limits of rate",
	"limit-connections":     "routes have no limits of connections",
	"affinity":              "routes of the standard channel have no sessions",
	"configuration-snippet": "use filters of the route",
	"server-snippet":        "use a rule of the route",
	"proxy-buffering":       "bodies are passed on as they come",
	"proxy-buffer-size":     "bodies are passed on as they come",
	"proxy-buffers-number":  "bodies are passed on as they come",
}

// alongside are read together with another annotation.
var alongside = []string{"cors-", "session-cookie-", "canary"}

// annotations reads those of the Ingress; false if it must not be converted.
func (i *one) annotations() bool {
	i.asked.sslRedirect = true
	all := i.o.Annotations
	converted := true
	for _, name := range slices.Sorted(maps.Keys(all)) {
		short, ours := strings.CutPrefix(name, nginx)
		if !ours {
			i.foreign(name, all[name])
			continue
		}
		if slices.ContainsFunc(protect, func(p string) bool { return strings.HasPrefix(short, p) }) {
			i.left("annotation %s protects it and has no form in routes: the Ingress is not converted", name)
			converted = false
			continue
		}
		if err := i.annotation(short, all[name]); err != nil {
			i.left("annotation %s: %v", name, err)
		}
	}
	return converted
}

// readAtGateways are annotations of programs that look at Gateways.
var readAtGateways = []string{"cert-manager.io/", "acme.cert-manager.io/"}

// notOfRequests are annotations that say nothing of requests.
var notOfRequests = []string{"kubectl.kubernetes.io/", "meta.helm.sh/", "kubernetes.io/ingress.class", "argocd.argoproj.io/"}

// foreign keeps the annotation of another program where that looks for it, or names it.
func (i *one) foreign(name, text string) {
	begins := func(p string) bool { return strings.HasPrefix(name, p) }
	switch {
	case slices.ContainsFunc(notOfRequests, begins):
	case slices.ContainsFunc(readAtGateways, begins):
		kept := i.listenersOf(i.o.Namespace).annotations
		if other, given := kept[name]; given && other != text {
			i.left("annotation %s: the Gateway has it already, as %q of another Ingress", name, other)
			return
		}
		kept[name] = text
	case strings.HasPrefix(name, "external-dns.alpha.kubernetes.io/"):
		i.asked.annotations = append(i.asked.annotations, name)
	default:
		i.left("annotation %s: is left out: has no form in routes", name)
	}
}

func (i *one) annotation(short, text string) error {
	switch short {
	case "ssl-redirect":
		return readBool(&i.asked.sslRedirect, text)
	case "force-ssl-redirect":
		return readBool(&i.asked.forceRedirect, text)
	case "use-regex":
		return readBool(&i.asked.regexp, text)
	case "rewrite-target":
		i.asked.rewriteTarget = text
	case "upstream-vhost":
		i.asked.hostname = text
	case "permanent-redirect":
		return i.redirect(text, http.StatusMovedPermanently)
	case "temporal-redirect":
		return i.redirect(text, http.StatusFound)
	case "enable-cors":
		on := false
		if err := readBool(&on, text); err != nil || !on {
			return err
		}
		f := cors(i.o.Annotations)
		i.left("annotation %senable-cors: OPTIONS that are no browser's preflight go to the backend; ingress-nginx answered them", nginx)
		f.AllowOrigins = slices.DeleteFunc(f.AllowOrigins, i.isNoOrigin)
		i.asked.filters = append(i.asked.filters, gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterCORS, CORS: f})
	case "backend-protocol":
		return protocol(text)
	default:
		if instead := elsewhere[short]; instead != "" {
			return fmt.Errorf("is left out: %s", instead)
		}
		if !slices.ContainsFunc(alongside, func(p string) bool { return strings.HasPrefix(short, p) }) {
			return fmt.Errorf("is left out: has no form in routes")
		}
	}
	return nil
}

// protocol says what a Service's endpoints need to be spoken to in their way.
func protocol(text string) error {
	switch strings.ToUpper(text) {
	case "HTTP", "AUTO_HTTP":
		return nil
	case "GRPC":
		return fmt.Errorf("%s: give the Service's port appProtocol: kubernetes.io/h2c, or use a GRPCRoute", text)
	case "HTTPS", "GRPCS":
		return fmt.Errorf("%s: write a BackendTLSPolicy for the Service, with the authority that its certificates are checked with", text)
	}
	return fmt.Errorf("%q: must be HTTP, HTTPS, GRPC or GRPCS", text)
}

// redirect is the answer to every request.
func (i *one) redirect(text string, status int) error {
	if strings.Contains(text, "$") {
		return fmt.Errorf("%q has variables, which redirects of routes haven't", text)
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" && !strings.HasPrefix(u.Path, "/") {
		return fmt.Errorf("%q is not a URL with a host, nor a path", text)
	}
	f := &gatewayv1.HTTPRequestRedirectFilter{StatusCode: &status}
	path := cmp.Or(u.EscapedPath(), "/")
	f.Path = &gatewayv1.HTTPPathModifier{Type: gatewayv1.FullPathHTTPPathModifier, ReplaceFullPath: &path}
	if u.Host != "" {
		host := gatewayv1.PreciseHostname(u.Hostname())
		f.Scheme, f.Hostname = &u.Scheme, &host
	}
	if u.Port() != "" {
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil {
			return fmt.Errorf("%q is not a port", u.Port())
		}
		port := gatewayv1.PortNumber(n)
		f.Port = &port
	}
	i.asked.redirects = true
	i.asked.filters = append(i.asked.filters, gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestRedirect, RequestRedirect: f})
	if u.RawQuery != "" {
		return fmt.Errorf("the query ?%s is left out: redirects keep the request's", u.RawQuery)
	}
	return nil
}

// isNoOrigin reports what routes don't take for an origin, and says what they take
// otherwise.
func (i *one) isNoOrigin(o gatewayv1.CORSOrigin) bool {
	switch text := string(o); {
	case text != "*" && !strings.Contains(text, "://"):
		i.left("annotation %scors-allow-origin: %q is left out: an origin has a scheme", nginx, text)
		return true
	case len(text) > 1 && strings.Contains(text, "*"):
		i.left("annotation %scors-allow-origin: %q: the asterisk stands for one label, and for any labels in routes", nginx, text)
	}
	return false
}

// cors is what enable-cors means, with ingress-nginx' defaults.
func cors(all map[string]string) *gatewayv1.HTTPCORSFilter {
	credentials := all[nginx+"cors-allow-credentials"] != "false"
	age, err := strconv.ParseInt(all[nginx+"cors-max-age"], 10, 32)
	if err != nil {
		age = 1728000
	}
	if strings.TrimSpace(cmp.Or(all[nginx+"cors-allow-origin"], "*")) == "*" {
		credentials = false // browsers never sent any to "*"; a route would name each origin
	}
	return &gatewayv1.HTTPCORSFilter{
		AllowOrigins: split[gatewayv1.CORSOrigin](cmp.Or(strings.TrimSpace(all[nginx+"cors-allow-origin"]), "*")), AllowCredentials: &credentials,
		AllowMethods:  split[gatewayv1.HTTPMethodWithWildcard](cmp.Or(all[nginx+"cors-allow-methods"], "GET, PUT, POST, DELETE, PATCH, OPTIONS")),
		AllowHeaders:  split[gatewayv1.HTTPHeaderName](cmp.Or(all[nginx+"cors-allow-headers"], "DNT, Keep-Alive, User-Agent, X-Requested-With, If-Modified-Since, Cache-Control, Content-Type, Range, Authorization")),
		ExposeHeaders: split[gatewayv1.HTTPHeaderName](all[nginx+"cors-expose-headers"]), MaxAge: int32(age),
	}
}

func split[T ~string](text string) (out []T) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, T(item))
		}
	}
	return out
}

func readBool(b *bool, text string) error {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("%q: must be true or false", text)
	}
	*b = on
	return nil
}
