package compile

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/ingress/compile/host"
	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// oneOf lets certain values pass.
func oneOf(list ...string) func(string) error {
	return func(t string) error {
		if !slices.Contains(list, t) {
			return fmt.Errorf("%q: must be %s", t, strings.Join(list, " or "))
		}
		return nil
	}
}

// judged has one value judged so, and others, which must pass the check, work.
func judged(s Support, is func(string) bool, check func(string) error) reader {
	return func(_ *reading, t string) error {
		if is(t) {
			return &verdict{support: s}
		}
		if err := check(t); err != nil {
			return err
		}
		return &verdict{support: Works}
	}
}

func equals(value string) func(string) bool { return func(t string) bool { return t == value } }

func closeIf(value string) reader { return judged(Closes, equals(value), isBool) }
func otherwiseIf(value string, check func(string) error) reader {
	return judged(Otherwise, equals(value), check)
}

func otherwiseUnlessTLS(_ *reading, t string) error {
	if strings.Contains(t, "TLSv1.2") || strings.Contains(t, "TLSv1.3") {
		return &verdict{support: Works}
	}
	return nil
}

func readAppRoot(r *reading, t string) error {
	if !strings.HasPrefix(t, "/") || strings.ContainsAny(t, "\r\n") {
		return fmt.Errorf("%q: must be a path", t)
	}
	r.a.appRoot = t
	return nil
}

func readAffinity(r *reading, t string) error {
	if t != "cookie" {
		return fmt.Errorf("%q: must be cookie", t)
	}
	name, path, domain := or(r.get("session-cookie-name"), "INGRESSCOOKIE"), r.get("session-cookie-path"), r.get("session-cookie-domain")
	switch {
	case !httpguts.ValidHeaderFieldName(name): // a token, as the name of a cookie is (RFC 6265, 4.1.1)
		return fmt.Errorf("session-cookie-name: %q is no name of a cookie", name)
	case !isCookiePath(path):
		return fmt.Errorf("session-cookie-path: %q is no path that a cookie can have", path)
	case domain != "" && !isHostname(strings.ToLower(strings.TrimPrefix(domain, "."))):
		return fmt.Errorf("session-cookie-domain: %q is no domain", domain)
	}
	r.a.base.Affinity = &model.Affinity{
		Cookie: name, Path: path, Domain: domain,
		SameSite: r.get("session-cookie-samesite"), Secure: r.get("session-cookie-secure") == "true",
		Loose: r.get("affinity-canary-behavior") == "legacy", Keep: r.get("session-cookie-change-on-failure") != "true",
		Known: r.get("session-cookie-conditional-samesite-none") == "true",
	}
	r.a.base.Affinity.MaxAge, _ = strconv.Atoi(or(r.get("session-cookie-max-age"), r.get("session-cookie-expires"))) // none is 0
	return nil
}

// isCookiePath reports whether a cookie can have a path (RFC 6265, 4.1.1).
func isCookiePath(path string) bool {
	return !strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c >= 0x7f || c == ';' })
}

func readBasic(r *reading, t string) error {
	if t != "basic" {
		return fmt.Errorf("%q: must be basic", t)
	}
	name := r.get("auth-secret")
	if namespace, short, found := strings.Cut(name, "/"); found {
		if name = short; namespace != r.o.Namespace {
			return fmt.Errorf("auth-secret: %s is in another namespace, and is not read", r.get("auth-secret"))
		}
	}
	s := r.secret(types.NamespacedName{Namespace: r.o.Namespace, Name: name})
	if s == nil {
		return fmt.Errorf("auth-secret: there is no Secret %q in the Ingress's namespace", name)
	}
	users := map[string]string{}
	if r.get("auth-secret-type") == "auth-map" {
		for user, hash := range s.Data {
			users[user] = strings.TrimSpace(string(hash))
		}
	} else {
		for line := range strings.Lines(string(s.Data["auth"])) {
			if user, hash, found := strings.Cut(strings.TrimSpace(line), ":"); found && !strings.HasPrefix(user, "#") {
				users[user] = hash
			}
		}
	}
	for user, hash := range users {
		if !policy.KnowsHash(hash) {
			return fmt.Errorf("auth-secret: Secret %s: the password of %q is written in a form that isn't known (known are apr1, bcrypt, SHA, and crypt's $1$, $5$ and $6$)", name, user)
		}
	}
	r.a.base.BasicAuth = &model.BasicAuth{Realm: strings.ReplaceAll(or(r.get("auth-realm"), "Authentication Required"), `"`, ""), Users: users}
	return nil
}

func readProtocol(r *reading, t string) error {
	t = strings.ToUpper(t)
	if err := oneOf("HTTP", "HTTPS", "GRPC", "GRPCS", "AUTO_HTTP")(t); err != nil {
		return err
	}
	r.a.protocol = t
	return nil
}

func readCORS(r *reading, t string) error {
	on := false
	if err := readBool(&on, t); err != nil || !on {
		return err
	}
	r.a.base.CORS = nginxCORS(r.o.Annotations)
	return nil
}

// headersOf are those of a ConfigMap of the Ingress's namespace.
func (r *reading) headersOf(t string) ([]model.Header, error) {
	name := types.NamespacedName{Namespace: r.o.Namespace, Name: t}
	if namespace, short, found := strings.Cut(t, "/"); found {
		if name.Name = short; namespace != r.o.Namespace {
			return nil, fmt.Errorf("%s is in another namespace, and is not read", t)
		}
	}
	m := r.configMap(name)
	if m == nil {
		return nil, fmt.Errorf("there is no ConfigMap %s", name)
	}
	var list []model.Header
	for key, value := range m.Data {
		key = http.CanonicalHeaderKey(key)
		if why := policy.Written(key); why != "" || strings.ContainsAny(value, "\r\n") {
			return nil, fmt.Errorf("ConfigMap %s: %s: %s", name, key, cmp.Or(why, "the value has more than a line"))
		}
		list = append(list, model.Header{Name: key, Value: value})
	}
	slices.SortFunc(list, func(a, b model.Header) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func readCustomHeaders(r *reading, t string) error {
	list, err := r.headersOf(t)
	r.a.base.Response.Set = append(r.a.base.Response.Set, list...)
	return err
}

func readForwardedPrefix(r *reading, t string) error {
	if strings.ContainsAny(t, "\r\n$") {
		return fmt.Errorf("%q: must be a text without variables", t)
	}
	r.a.base.Request.Set = append(r.a.base.Request.Set, model.Header{Name: "X-Forwarded-Prefix", Value: t})
	return nil
}

func readHost(r *reading, t string) error {
	if strings.ContainsAny(t, "\r\n$ ") {
		return fmt.Errorf("%q: must be a host without variables", t)
	}
	r.a.base.Rewrite = rewriteOf(r.a.base.Rewrite)
	r.a.base.Rewrite.Host = t
	return nil
}

// readRedirect reads whether requests are redirected; force-ssl-redirect, which comes
// first by name, has precedence.
func readRedirect(on, off host.Redirect) reader {
	return boolean(func(a *annotations, said bool) {
		if a.redirect != host.Always {
			a.redirect = map[bool]host.Redirect{true: on, false: off}[said]
		}
	})
}

func redirectTo(status int) reader {
	return func(r *reading, t string) error {
		if err := model.CheckVariables(group.ReplaceAllString(t, "")); err != nil {
			return err
		}
		isPath := strings.HasPrefix(t, "/") && !strings.HasPrefix(t, "//")
		if !isPath && !strings.HasPrefix(t, "http://") && !strings.HasPrefix(t, "https://") && !strings.HasPrefix(t, "$scheme://") || strings.ContainsFunc(t, func(c rune) bool { return c <= ' ' }) {
			return fmt.Errorf("%q: must be an http or https address, or a path", t)
		}
		r.a.base.Redirect = &model.Redirect{Whole: t, Status: status, Variables: strings.Contains(t, "$"), Relative: r.a.relative}
		return nil
	}
}

// readRelative comes before or after what redirects.
func readRelative(a *annotations, on bool) {
	a.relative = on
	if a.base.Redirect != nil {
		a.base.Redirect.Relative = on
	}
}

func readRedirectCode(r *reading, t string) error {
	var err error
	set := func(n int) {
		if n < 300 || n > 308 {
			err = fmt.Errorf("%d: must be from 300 to 308", n)
		} else if r.a.base.Redirect != nil {
			r.a.base.Redirect.Status = n
		}
	}
	if wrong := readInt(t, set); wrong != nil {
		return wrong
	}
	return err
}

// group is what a regular expression has caught.
var group = regexp.MustCompile(`\$(\d+)`)

func readRewrite(r *reading, t string) error {
	if rest := group.ReplaceAllString(t, ""); strings.Contains(rest, "$") || strings.ContainsFunc(t, func(c rune) bool { return c <= ' ' }) {
		return fmt.Errorf("%q: $1 to $9 are the only variables", t)
	}
	path, query, _ := strings.Cut(t, "?")
	r.a.regexp = true
	r.a.base.Rewrite = rewriteOf(r.a.base.Rewrite)
	// $1x would be the group "1x"
	r.a.base.Rewrite.Path = &model.PathEdit{Groups: true, Value: group.ReplaceAllString(path, "${$1}"), Query: group.ReplaceAllString(query, "${$1}")}
	return nil
}

func readAlias(r *reading, t string) error {
	for alias := range strings.SplitSeq(t, ",") {
		alias = strings.ToLower(strings.TrimSpace(alias))
		if !isHostname(alias) {
			return fmt.Errorf("%q: must be hostnames; patterns are not supported", alias)
		}
		r.a.aliases = append(r.a.aliases, alias)
	}
	return nil
}

func readBodySize(r *reading, t string) (err error) {
	r.a.base.MaxBody, err = size(t)
	return err
}

func seconds(field func(*annotations) *time.Duration) reader {
	return func(r *reading, t string) error {
		return readInt(strings.TrimSuffix(t, "s"), func(n int) { *field(r.a) = time.Duration(n) * time.Second })
	}
}

func prefixes(field func(*annotations) *[]netip.Prefix) reader {
	return func(r *reading, t string) error {
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
		*field(r.a) = list
		return nil
	}
}

// nextUpstream are the conditions of nginx that are codes.
var nextUpstream = map[string]int{"http_500": 500, "http_502": 502, "http_503": 503, "http_504": 504, "http_403": 403, "http_404": 404, "http_429": 429}

// readNextUpstream reads all of proxy-next-upstream*, at the first of them.
func readNextUpstream(r *reading, _ string) error {
	if r.a.base.Retry != nil {
		return nil
	}
	retry := &model.Retry{Attempts: 2, Idempotent: true}
	if err := readConditions(retry, or(r.get("proxy-next-upstream"), "error timeout")); err != nil {
		return fmt.Errorf("proxy-next-upstream: %w", err)
	}
	if text := r.get("proxy-next-upstream-tries"); text != "" && retry.Attempts > 0 {
		n, err := strconv.Atoi(text)
		switch {
		case err != nil || n < 0:
			return fmt.Errorf("proxy-next-upstream-tries: %q: must be a whole number", text)
		case n == 0:
			n = mostTries
		}
		retry.Attempts = min(n, mostTries) - 1
	}
	if within := r.get("proxy-next-upstream-timeout"); within != "" {
		n, err := strconv.Atoi(strings.TrimSuffix(within, "s"))
		if err != nil || n < 0 {
			return fmt.Errorf("proxy-next-upstream-timeout: %q: must be seconds", within)
		}
		retry.Within = time.Duration(n) * time.Second
	}
	r.a.base.Retry = retry
	return nil
}

// mostTries is how many endpoints are asked where any number is.
const mostTries = 16

// readConditions reads after what another endpoint is asked.
func readConditions(retry *model.Retry, text string) error {
	for word := range strings.FieldsSeq(text) {
		switch code := nextUpstream[word]; {
		case code != 0:
			retry.Codes = append(retry.Codes, code)
		case word == "error" || word == "invalid_header":
			retry.Connection = true
		case word == "timeout":
			retry.Late = true
		case word == "non_idempotent":
			retry.Idempotent = false
		case word == "off":
			retry.Attempts = 0
		default:
			return fmt.Errorf("%q is no condition", word)
		}
	}
	return nil
}

// readIdentity reads what is asked of clients' certificates, and what endpoints are told.
func readIdentity(r *reading) error {
	i := &model.Identity{Whole: r.get("auth-tls-pass-certificate-to-upstream") == "true"}
	if pattern := r.get("auth-tls-match-cn"); pattern != "" {
		var err error
		if i.Subject, err = regexp.Compile(pattern); err != nil {
			return fmt.Errorf("auth-tls-match-cn: %w", err)
		}
	}
	r.a.base.Identity = i
	return nil
}

func readMirrorHost(r *reading, t string) error {
	if !isHostname(strings.ToLower(t)) {
		return fmt.Errorf("%q: must be a host without variables", t)
	}
	r.a.mirrorHost = t
	return nil
}

func readSatisfy(r *reading, t string) error {
	if err := oneOf("all", "any")(t); err != nil {
		return err
	}
	r.a.base.AnyOf = t == "any"
	return nil
}

func readCookies(attribute string) reader {
	return func(r *reading, t string) error {
		if t == "off" {
			return nil
		}
		words := strings.Fields(t)
		if len(words) != 2 || strings.ContainsAny(t, "$~;") {
			return fmt.Errorf("%q: must be off, or two texts without patterns and variables", t)
		}
		r.a.base.Response.Replace = append(r.a.base.Response.Replace, model.Replacement{Name: attribute, From: words[0], To: words[1]})
		return nil
	}
}

func readLocation(r *reading, t string) error {
	switch to := r.get("proxy-redirect-to"); {
	case t == "off" || t == "default" && to == "":
		return nil
	case to == "" || strings.ContainsAny(t+to, "$~\r\n"):
		return fmt.Errorf("%q to %q: must be off, or two texts without patterns and variables", t, to)
	default:
		r.a.base.Response.Replace = append(r.a.base.Response.Replace, model.Replacement{Name: "Location", From: t, To: to})
		return nil
	}
}

// readBackendTLS reads all of proxy-ssl-*, at the first of them.
func readBackendTLS(r *reading, _ string) error {
	if r.a.tls != nil {
		return nil
	}
	if err := oneOf("", "on", "off")(r.get("proxy-ssl-verify")); err != nil {
		return fmt.Errorf("proxy-ssl-verify: %w", err)
	}
	verify, serverName, text := r.get("proxy-ssl-verify") == "on", r.get("proxy-ssl-name"), r.get("proxy-ssl-secret")
	t := &model.BackendTLS{ServerName: serverName, Insecure: !verify}
	if text == "" && verify {
		return fmt.Errorf("proxy-ssl-verify: the annotation proxy-ssl-secret has to say which authority is trusted")
	}
	if verify && serverName == "" {
		return fmt.Errorf("proxy-ssl-verify: the annotation proxy-ssl-name has to say which name endpoints must have")
	}
	if text != "" {
		name := types.NamespacedName{Namespace: r.o.Namespace, Name: text}
		if namespace, short, found := strings.Cut(text, "/"); found {
			if name.Name = short; namespace != r.o.Namespace {
				return fmt.Errorf("proxy-ssl-secret: %s is in another namespace, and is not read", text)
			}
		}
		var err error
		if verify {
			if t.Authorities, err = r.authorities("", "Secret", name); err != nil {
				return fmt.Errorf("proxy-ssl-secret: %w", err)
			}
			t.Roots = poolOf(t.Authorities)
		}
		if s := r.secret(name); s == nil || len(s.Data[corev1.TLSCertKey]) > 0 {
			if t.Certificate, err = r.options.Certificates.read(name, s); err != nil {
				return fmt.Errorf("proxy-ssl-secret: %w", err)
			}
		}
		text = name.String()
		if s := r.secret(name); s != nil {
			text += "@" + s.ResourceVersion
		}
	}
	t.Key = fmt.Sprintf("proxy-ssl-%t-%s-%s", verify, serverName, text)
	r.a.tls = t
	return nil
}

func readLoadBalance(r *reading, t string) error {
	if err := oneOf("round_robin", "ewma")(t); err != nil {
		return err
	}
	if t == "ewma" && r.a.algorithm == model.RoundRobin {
		r.a.algorithm = model.LeastRequests
	}
	return nil
}

func readHashBy(r *reading, t string) error {
	if t != "$binary_remote_addr" && t != "$remote_addr" {
		return &verdict{Refused, fmt.Sprintf("%q: the client's address is the only key; endpoints are asked in turn", t)}
	}
	r.a.algorithm = model.Source
	return nil
}

func readMirror(r *reading, t string) error {
	u, err := url.Parse(strings.TrimSuffix(t, "$request_uri"))
	if err != nil || strings.Contains(u.String(), "$") || u.Host == "" || u.Path != "" && u.Path != "/" {
		return fmt.Errorf("%q: must be an address, with $request_uri behind it", t)
	}
	// A copy has a method and a body of the client's choice.
	name, isService := serviceNamed(u)
	if isService && !r.grants.allowFrom(networkingv1.GroupName, "Ingress", r.o.Namespace, "", "Service", name) {
		return fmt.Errorf("Service %s: %w", name, errNotPermitted) //nolint:staticcheck // a kind's name
	}
	pool, err := r.authPool(r.o, r.a, u)
	if err != nil {
		return err
	}
	if pool == "" {
		return &verdict{Refused, fmt.Sprintf("%q: must be a Service's address, such as http://copy.shop.svc.cluster.local", t)}
	}
	r.a.base.Mirrors = append(r.a.base.Mirrors, model.Mirror{Pool: pool, Numerator: 1, Denominator: 1})
	return nil
}

// guards are directives of nginx by which somebody is kept out.
var guards = regexp.MustCompile(`(?m)\b(deny|allow|auth_\w+|satisfy|limit_\w+|internal|modsecurity\w*|secure_link\w*|valid_referers|ssl_\w+|return\s+[45]\d\d|access_by_lua\w*)\b`)

// readSnippet refuses a snippet. One that keeps somebody out closes the Ingress.
func readSnippet(_ *reading, t string) error {
	if found := guards.FindString(t); found != "" {
		return &verdict{Closes, fmt.Sprintf("snippets are never run, and this one keeps somebody out (%s)", found)}
	}
	return nil
}
