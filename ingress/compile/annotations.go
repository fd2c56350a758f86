package compile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairway-net/fairway/ingress/compile/host"
	"github.com/fairway-net/fairway/ingress/model"
)

// NginxPrefix is that of ingress-nginx' annotations.
const NginxPrefix = nginx

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
	perMinute     int    // requests; 0 is any number
	burst         int    // how many times the rate; 0 is ingress-nginx' own
	unlimited     []netip.Prefix
	readTimeout   time.Duration
	sendTimeout   time.Duration
	rate          model.Rate
	mirrorHost    string
	bodiless      bool              // copies of requests are
	keepErrors    bool              // of endpoints, in spite of custom-http-errors
	clusterIP     bool              // of the Service is asked, not endpoints
	tls           *model.BackendTLS // of endpoints, if they are spoken to by TLS
	suffix        string            // names what adapt changes; "" if nothing
	protocol      string
	algorithm     model.Algorithm
}

// reading is an Ingress whose annotations are read.
type reading struct {
	*compiler
	o *networkingv1.Ingress
	a *annotations
}

// get is another annotation of ingress-nginx.
func (r *reading) get(name string) string { return strings.TrimSpace(r.o.Annotations[nginx+name]) }

// reader reads one annotation. Besides errors, it may return a [verdict].
type reader func(r *reading, text string) error

// verdict is what becomes of a value otherwise than of others.
type verdict struct {
	support Support
	why     string // "" is the annotation's effect
}

func (v *verdict) Error() string { return v.why }

// seeds are the annotations of the former service-loadbalancer.
var seeds = map[string]reader{
	seed + "cookie-sticky-session": func(r *reading, t string) error {
		if t == "true" {
			r.a.base.Affinity = &model.Affinity{Cookie: "SERVERID"}
		}
		return nil
	},
	seed + "algorithm": func(r *reading, t string) error {
		algorithm, given := algorithms[t]
		if !given {
			return fmt.Errorf("%q: must be roundrobin, leastconn or source", t)
		}
		r.a.algorithm = algorithm
		return nil
	},
}

// ours are annotations of an Ingress that are read elsewhere.
var ours = []string{AnnotationACME}

// annotations reads those of an Ingress. What isn't done as it is asked is told by a
// problem that names the annotation; all else is done.
func (c *compiler) annotations(o *networkingv1.Ingress) *annotations {
	r := &reading{c, o, &annotations{}}
	for _, name := range slices.Sorted(maps.Keys(o.Annotations)) {
		short, isNginx := strings.CutPrefix(name, nginx)
		switch known := known[name]; {
		case known != nil:
			r.one(known)
		case isNginx:
			c.problem("Ingress", nameOf(o), ReasonRefused, "annotation "+name+": not supported, and left out")
			if mayProtect(short) { // never open what was to be closed
				r.a.base.Invalid = "annotation " + name + " is not supported, and nobody is let in without it"
			}
		case seeds[name] != nil:
			if err := seeds[name](r, o.Annotations[name]); err != nil {
				c.problem("Ingress", nameOf(o), ReasonInvalid, fmt.Sprintf("annotation %s: %v", name, err))
			}
		case strings.HasPrefix(name, "fairway.dev/") || strings.HasPrefix(name, "serviceloadbalancer/"):
			if !slices.Contains(ours, name) {
				c.problem("Ingress", nameOf(o), ReasonInvalid, "annotation "+name+": there is none of that name for an Ingress, and it is left out")
			}
		}
	}
	c.settleErrors(o, r.a)
	if r.a.settle(); r.a.base.Limit != nil { // not of each path
		r.a.base.Limit.Of = "Ingress " + nameOf(o).String()
	}
	return r.a
}

// one reads an annotation of ingress-nginx.
func (r *reading) one(known *Annotation) {
	name := nginx + known.Name
	tell := func(reason, why string) { r.problem("Ingress", nameOf(r.o), reason, "annotation "+name+": "+why) }
	if known.alone != "" && r.get(known.alone) == "" {
		tell(ReasonInvalid, "says nothing without the annotation "+known.alone)
		return
	}
	var err error
	switch text := strings.TrimSpace(r.o.Annotations[name]); {
	case known.read == nil:
	case text == "" && !known.Protects:
		err = errors.New("is empty")
	default:
		err = known.read(r, text)
	}
	support, why := known.Support, known.Effect
	var v *verdict
	switch {
	case errors.As(err, &v):
		support, why = v.support, cmp.Or(v.why, known.Effect)
	case err != nil:
		tell(ReasonInvalid, err.Error())
		if known.Protects { // never open what was to be closed
			r.a.base.Invalid = "annotation " + name + " can't be read"
			if strings.HasPrefix(known.Name, "auth-tls-") {
				r.a.clientsClosed = r.a.base.Invalid
			}
		}
		return
	}
	switch support {
	case Otherwise:
		tell(ReasonOtherwise, why)
	case Refused:
		tell(ReasonRefused, "left out: "+why)
	case Closes:
		tell(ReasonRefused, "nobody is let in without it: "+why)
		r.a.base.Invalid = "annotation " + name + " is not supported, and nobody is let in without it"
	}
}

// settle names what adapt changes, once all is read.
func (a *annotations) settle() {
	if a.rate.PerSecond > 0 {
		a.base.Rate = &a.rate
	}
	for i := range a.base.Mirrors {
		a.base.Mirrors[i].Host, a.base.Mirrors[i].Bodiless = a.mirrorHost, a.bodiless
	}
	a.base.ReadTimeout = max(a.readTimeout, a.sendTimeout)
	if a.keepErrors {
		a.base.Errors = nil
	}
	if a.perMinute > 0 {
		a.base.Limit = limitOf(a.base.Limit)
		if rate := float64(a.perMinute) / 60; a.base.Limit.PerSecond == 0 || rate < a.base.Limit.PerSecond {
			a.base.Limit.PerSecond = rate
		}
	}
	if l := a.base.Limit; l != nil {
		rate := int(l.PerSecond)
		if l.PerSecond < 1 || a.perMinute > 0 && float64(a.perMinute)/60 == l.PerSecond {
			rate = a.perMinute
		}
		l.Burst, l.Except = 1+rate*cmp.Or(a.burst, 5), a.unlimited // nginx' burst is beside the one that the rate allows
	}
	if a.protocol != "" && a.protocol != "HTTP" && a.protocol != "AUTO_HTTP" || a.algorithm != model.RoundRobin {
		a.suffix = fmt.Sprintf("%s-%d", strings.ToLower(a.protocol), a.algorithm)
	}
	if t := a.tls; t != nil && strings.HasSuffix(a.protocol, "S") {
		a.suffix += "-" + t.Key
	}
	if a.clusterIP {
		a.suffix += "-cluster-ip"
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
		if p.TLS == nil && a.tls != nil {
			p.TLS = a.tls
		}
		if p.TLS == nil { // as ingress-nginx does without proxy-ssl-verify
			p.TLS = &model.BackendTLS{Key: "insecure", Insecure: true}
		}
	}
}

// nginxCORS is what enable-cors means, with ingress-nginx' defaults.
func nginxCORS(all map[string]string) *model.CORS {
	list := func(name, otherwise string) []string {
		var out []string
		for item := range strings.SplitSeq(or(strings.TrimSpace(all[nginx+name]), otherwise), ",") {
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
