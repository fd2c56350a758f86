package compile

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairway-net/fairway/ingress/compile/host"
	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// nginx is the prefix of ingress-nginx' annotations, seed that of the haproxy
// Service load balancer's.
const (
	nginx = "nginx.ingress.kubernetes.io/"
	seed  = "serviceloadbalancer/lb."
)

// annotations are what those of an Ingress ask for.
type annotations struct {
	base          model.Action
	regexp        bool
	redirect      host.Redirect // of the host's requests over HTTP
	aliases       []string      // other names of its hosts
	relative      bool          // redirects name no host
	canary        *canary       // nil if it is none
	appRoot       string
	www           bool // hosts with and without www. lead to the one that is there
	passthrough   bool
	clients       *model.ClientValidation
	clientsClosed string // why nobody may be let in, where clients can't be told apart
	suffix        string // names what adapt changes; "" if nothing
	protocol      string
	algorithm     model.Algorithm
}

// reader reads one annotation into a.
type reader func(c *compiler, o *networkingv1.Ingress, a *annotations, text string) error

// known is the one list of annotations that are understood.
var known = map[string]reader{
	nginx + "ssl-redirect":       readRedirect(host.WithTLS, host.Never),
	nginx + "force-ssl-redirect": readRedirect(host.Always, host.Unsaid),
	nginx + "use-regex": func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		return readBool(&a.regexp, t)
	},
	nginx + "rewrite-target": func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		a.regexp = true
		a.base.Rewrite = rewriteOf(a.base.Rewrite)
		// $1x would be the group "1x"
		a.base.Rewrite.Path = &model.PathEdit{Groups: true, Value: regexp.MustCompile(`\$(\d+)`).ReplaceAllString(t, "${$1}")}
		return nil
	},
	nginx + "upstream-vhost": func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		a.base.Rewrite = rewriteOf(a.base.Rewrite)
		a.base.Rewrite.Host = t
		return nil
	},
	nginx + "proxy-body-size": func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) (err error) {
		a.base.MaxBody, err = size(t)
		return err
	},
	nginx + "proxy-read-timeout":    seconds(func(a *annotations) *time.Duration { return &a.base.ReadTimeout }),
	nginx + "proxy-send-timeout":    ignored,
	nginx + "proxy-connect-timeout": seconds(func(a *annotations) *time.Duration { return &a.base.ConnectTimeout }),
	nginx + "proxy-buffer-size":     ignored, // answers are not buffered
	nginx + "proxy-buffering":       ignored,
	nginx + "backend-protocol": func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		a.protocol = strings.ToUpper(t)
		if !slices.Contains([]string{"HTTP", "HTTPS", "GRPC", "GRPCS", "AUTO_HTTP"}, a.protocol) {
			a.protocol = ""
			return fmt.Errorf("%q: must be HTTP, HTTPS, GRPC or GRPCS", t)
		}
		return nil
	},
	nginx + "configuration-snippet":  refused("filters of an HTTPRoute (RequestHeaderModifier, ResponseHeaderModifier, URLRewrite)"),
	nginx + "server-snippet":         refused("a rule of an HTTPRoute"),
	nginx + "whitelist-source-range": prefixes(func(a *annotations) *[]netip.Prefix { return &a.base.Allow }),
	nginx + "allowlist-source-range": prefixes(func(a *annotations) *[]netip.Prefix { return &a.base.Allow }),
	nginx + "denylist-source-range":  prefixes(func(a *annotations) *[]netip.Prefix { return &a.base.Deny }),
	nginx + "enable-cors": func(_ *compiler, o *networkingv1.Ingress, a *annotations, t string) error {
		on := false
		if err := readBool(&on, t); err != nil || !on {
			return err
		}
		a.base.CORS = nginxCORS(o.Annotations)
		return nil
	},
	nginx + "limit-rps": func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		a.base.Limit = limitOf(a.base.Limit)
		return readInt(t, func(n int) { a.base.Limit.PerSecond, a.base.Limit.Burst = n, 5*n })
	},
	nginx + "limit-connections": func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		a.base.Limit = limitOf(a.base.Limit)
		return readInt(t, func(n int) { a.base.Limit.Connections = n })
	},
	nginx + "permanent-redirect": redirectTo(http.StatusMovedPermanently),
	nginx + "temporal-redirect":  redirectTo(http.StatusFound),
	nginx + "affinity": func(_ *compiler, o *networkingv1.Ingress, a *annotations, t string) error {
		if t != "cookie" {
			return fmt.Errorf("%q: must be cookie", t)
		}
		a.base.Affinity = &model.Affinity{
			Cookie: or(o.Annotations[nginx+"session-cookie-name"], "INGRESSCOOKIE"), Path: o.Annotations[nginx+"session-cookie-path"],
			Domain: o.Annotations[nginx+"session-cookie-domain"], SameSite: o.Annotations[nginx+"session-cookie-samesite"],
			Secure: o.Annotations[nginx+"session-cookie-secure"] == "true",
		}
		a.base.Affinity.MaxAge, _ = strconv.Atoi(o.Annotations[nginx+"session-cookie-max-age"]) // none is 0
		return nil
	},
	nginx + "auth-type": func(c *compiler, o *networkingv1.Ingress, a *annotations, t string) error {
		if t != "basic" {
			return fmt.Errorf("%q: must be basic", t)
		}
		return c.readBasicAuth(o, a)
	},
	nginx + "auth-url":           readAuth,
	nginx + "custom-http-errors": readErrors,
	nginx + "default-backend":    readFallback,
	nginx + "canary":             readCanary,
	nginx + "app-root": func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		if !strings.HasPrefix(t, "/") || strings.ContainsAny(t, "\r\n") {
			return fmt.Errorf("%q: must be a path", t)
		}
		a.appRoot = t
		return nil
	},
	nginx + "from-to-www-redirect": func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error { return readBool(&a.www, t) },
	nginx + "ssl-passthrough": func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		return readBool(&a.passthrough, t)
	},
	nginx + "auth-tls-secret": readClients,
	nginx + "server-alias": func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		for alias := range strings.SplitSeq(t, ",") {
			alias = strings.ToLower(strings.TrimSpace(alias))
			if !isHostname(alias) {
				return fmt.Errorf("%q: must be hostnames; patterns are not supported", alias)
			}
			a.aliases = append(a.aliases, alias)
		}
		return nil
	},
	seed + "cookie-sticky-session": func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		if t == "true" {
			a.base.Affinity = &model.Affinity{Cookie: "SERVERID"}
		}
		return nil
	},
	seed + "algorithm": func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		algorithm, given := algorithms[t]
		if !given {
			return fmt.Errorf("%q: must be roundrobin, leastconn or source", t)
		}
		a.algorithm = algorithm
		return nil
	},
}

// alongside are read together with another annotation.
var alongside = []string{"cors-", "session-cookie-", "auth-secret", "auth-realm", "canary-", "auth-tls-verify-client", "auth-signin", "auth-response-headers", "auth-method", "auth-cache-", "auth-keepalive", "auth-always-set-cookie"}

// ours are annotations of an Ingress that are read elsewhere.
var ours = []string{AnnotationACME}

// annotations reads those of an Ingress. What can't be done is told by a problem
// that names the annotation; all else is done.
func (c *compiler) annotations(o *networkingv1.Ingress) *annotations {
	a := &annotations{}
	var names []string
	for name := range o.Annotations {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		read := known[name]
		if isOurs := strings.HasPrefix(name, "fairway.dev/") || strings.HasPrefix(name, "serviceloadbalancer/"); read == nil && isOurs {
			if !slices.Contains(ours, name) {
				c.problem("Ingress", nameOf(o), ReasonInvalid, "annotation "+name+": there is none of that name for an Ingress, and it is left out")
			}
			continue
		}
		if read == nil {
			short, isNginx := strings.CutPrefix(name, nginx)
			if isNginx && !slices.ContainsFunc(alongside, func(p string) bool { return strings.HasPrefix(short, p) }) {
				c.problem("Ingress", nameOf(o), ReasonRefused, "annotation "+name+": not supported, and left out")
				if strings.HasPrefix(short, "auth") { // never open what was to be closed
					a.base.Invalid = "annotation " + name + " is not supported, and nobody is let in without it"
				}
			}
			continue
		}
		if err := read(c, o, a, o.Annotations[name]); err != nil {
			reason := ReasonInvalid
			if strings.Contains(name, "snippet") {
				reason = ReasonRefused
			}
			c.problem("Ingress", nameOf(o), reason, fmt.Sprintf("annotation %s: %v", name, err))
			if strings.Contains(name, "auth") || strings.Contains(name, "list-source") { // never open what was to be closed
				a.base.Invalid = "annotation " + name + " can't be read"
				if strings.HasPrefix(name, nginx+"auth-tls-") {
					a.clientsClosed = a.base.Invalid
				}
			}
		}
	}
	c.settleErrors(o, a)
	a.settle()
	return a
}

// settle names what adapt changes, once all is read.
func (a *annotations) settle() {
	if a.protocol != "" && a.protocol != "HTTP" && a.protocol != "AUTO_HTTP" || a.algorithm != model.RoundRobin {
		a.suffix = fmt.Sprintf("%s-%d", strings.ToLower(a.protocol), a.algorithm)
	}
}

// action is what a path of the Ingress does.
func (a *annotations) action(r *route, at string) *model.Action {
	action := a.base
	action.Route, action.Rule = r.title(), at
	return &action
}

// adapt changes how endpoints are spoken to.
func (a *annotations) adapt(p *model.Pool) {
	if a.algorithm != model.RoundRobin { // the Service may have asked for one
		p.Algorithm = a.algorithm
	}
	switch a.protocol {
	case "GRPC":
		p.Protocol = model.H2C
		if p.Proxy != model.ProxyNone {
			p.Invalid = "the PROXY protocol names one client for each connection, and one of gRPC has the requests of many"
		}
	case "HTTPS", "GRPCS":
		p.Protocol = model.HTTP2
		if p.TLS == nil { // as ingress-nginx does without proxy-ssl-verify
			p.TLS = &model.BackendTLS{Key: "insecure", Insecure: true}
		}
	}
}

func (c *compiler) readBasicAuth(o *networkingv1.Ingress, a *annotations) error {
	name := o.Annotations[nginx+"auth-secret"]
	s := c.secret(types.NamespacedName{Namespace: o.Namespace, Name: name})
	if s == nil {
		return fmt.Errorf("auth-secret: there is no Secret %q in the Ingress's namespace", name)
	}
	a.base.BasicAuth = &model.BasicAuth{Realm: strings.ReplaceAll(or(o.Annotations[nginx+"auth-realm"], "Authentication Required"), `"`, ""), Users: map[string]string{}}
	for line := range strings.Lines(string(s.Data["auth"])) {
		user, hash, found := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case !found || strings.HasPrefix(user, "#"):
		case !policy.KnowsHash(hash):
			return fmt.Errorf("auth-secret: Secret %s: the password of %q is written in a form that isn't known (known are apr1, bcrypt, SHA, and crypt's $1$, $5$ and $6$)", name, user)
		default:
			a.base.BasicAuth.Users[user] = hash
		}
	}
	return nil
}

func nginxCORS(all map[string]string) *model.CORS {
	list := func(name, otherwise string) []string {
		var out []string
		for item := range strings.SplitSeq(or(all[nginx+name], otherwise), ",") {
			if item = strings.TrimSpace(item); item != "" {
				out = append(out, item)
			}
		}
		return out
	}
	age, err := strconv.Atoi(all[nginx+"cors-max-age"])
	if err != nil {
		age = 1728000 // ingress-nginx' own
	}
	return &model.CORS{
		Literal: true,
		Origins: list("cors-allow-origin", "*"), Credentials: all[nginx+"cors-allow-credentials"] != "false",
		Methods: list("cors-allow-methods", "GET, PUT, POST, DELETE, PATCH, OPTIONS"),
		Headers: list("cors-allow-headers", "DNT, Keep-Alive, User-Agent, X-Requested-With, If-Modified-Since, Cache-Control, Content-Type, Range, Authorization"),
		Expose:  list("cors-expose-headers", ""), MaxAge: age,
	}
}

// readRedirect reads whether requests are redirected; force-ssl-redirect, which comes
// first by name, has precedence.
func readRedirect(on, off host.Redirect) reader {
	return func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		said := false
		if err := readBool(&said, t); err != nil {
			return err
		}
		if a.redirect != host.Always {
			a.redirect = map[bool]host.Redirect{true: on, false: off}[said]
		}
		return nil
	}
}

func refused(instead string) reader {
	return func(*compiler, *networkingv1.Ingress, *annotations, string) error {
		return fmt.Errorf("snippets are never run; use %s instead", instead)
	}
}

func ignored(*compiler, *networkingv1.Ingress, *annotations, string) error { return nil }

func redirectTo(status int) reader {
	return func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		if strings.ContainsAny(t, "\r\n") {
			return fmt.Errorf("%q is no address to redirect to", t)
		}
		a.base.Redirect = &model.Redirect{Whole: t, Status: status}
		return nil
	}
}

func seconds(field func(*annotations) *time.Duration) reader {
	return func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		return readInt(strings.TrimSuffix(t, "s"), func(n int) { *field(a) = time.Duration(n) * time.Second })
	}
}

func prefixes(field func(*annotations) *[]netip.Prefix) reader {
	return func(_ *compiler, _ *networkingv1.Ingress, a *annotations, t string) error {
		list := []netip.Prefix{}
		for item := range strings.SplitSeq(t, ",") {
			item = strings.TrimSpace(item)
			p, err := netip.ParsePrefix(item)
			if err != nil {
				one, err := netip.ParseAddr(item)
				if err != nil {
					return fmt.Errorf("%q is neither an address nor a range", item)
				}
				p = netip.PrefixFrom(one, one.BitLen())
			}
			list = append(list, p.Masked())
		}
		*field(a) = list
		return nil
	}
}

func readBool(b *bool, t string) error {
	on, err := strconv.ParseBool(t)
	if err != nil {
		return fmt.Errorf("%q: must be true or false", t)
	}
	*b = on
	return nil
}

func readInt(t string, set func(int)) error {
	n, err := strconv.Atoi(t)
	if err != nil || n < 0 {
		return fmt.Errorf("%q: must be a whole number", t)
	}
	set(n)
	return nil
}

// size reads a size as nginx writes it: 8m; 0 is unlimited.
func size(t string) (int64, error) {
	units := map[byte]int64{'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30}
	unit := int64(1)
	text := strings.ToLower(strings.TrimSpace(t))
	if text != "" {
		if u, given := units[text[len(text)-1]]; given {
			unit, text = u, text[:len(text)-1]
		}
	}
	n, err := strconv.ParseInt(text, 10, 40)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q: must be a size such as 8m", t)
	}
	return n * unit, nil
}

// isHostname reports whether a name may be a host's, perhaps with an asterisk for its
// first label.
func isHostname(name string) bool {
	return len(validation.IsDNS1123Subdomain(name)) == 0 || len(validation.IsWildcardDNS1123Subdomain(name)) == 0
}

func rewriteOf(r *model.Rewrite) *model.Rewrite {
	if r == nil {
		return &model.Rewrite{}
	}
	return r
}

func limitOf(l *model.Limit) *model.Limit {
	if l == nil {
		return &model.Limit{}
	}
	return l
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
