package compile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/ingress/model"
)

// AnnotationEject, on a Service or on a Gateway for all that its routes lead to, has
// endpoints that fail get no requests for a while: "true", or some of
// "errors=5,share=50%,for=10s,most=5m". A Service's own has precedence; "false" has none.
const AnnotationEject = "fairway.dev/eject"

// readEject reads the annotation; nil if there is none.
func readEject(text string) (*model.Eject, error) {
	e := &model.Eject{Errors: 5, For: 10 * time.Second, Most: 5 * time.Minute}
	switch text = strings.TrimSpace(text); text {
	case "", "false":
		return nil, nil
	case "true":
		return e, nil
	}
	var errs []error
	for item := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		var err error
		switch name {
		case "errors":
			e.Errors, err = strconv.Atoi(value)
		case "share":
			e.Share, err = strconv.Atoi(strings.TrimSuffix(value, "%"))
		case "for":
			e.For, err = time.ParseDuration(value)
		case "most":
			e.Most, err = time.ParseDuration(value)
		default:
			err = errors.New("must be true, false, or a list of errors, share, for and most")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", item, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	e.Most = max(e.Most, e.For)
	if e.Errors < 1 || e.Share < 0 || e.Share > 100 || e.For <= 0 {
		return nil, fmt.Errorf("%q: errors must be 1 or more, the share up to 100%%, and the time longer than 0", text)
	}
	return e, nil
}

// eject adds to a pool what its Service says of endpoints that fail, or else its Gateway,
// whose pool it is then alone.
func (c *compiler) eject(p *model.Pool, s *corev1.Service, g *gateway) {
	kind, object, text := "Service", nameOf(s), s.Annotations[AnnotationEject]
	if text == "" && g != nil {
		kind, object, text = "Gateway", nameOf(g.object), g.object.Annotations[AnnotationEject]
	}
	var err error
	if p.Eject, err = readEject(text); err != nil {
		c.problem(kind, object, ReasonInvalid, fmt.Sprintf("annotation %s: %v", AnnotationEject, err))
	}
	if p.Eject == nil {
		return
	}
	if kind == "Gateway" {
		p.Name += "/ejects@" + object.String()
	}
	if l := c.options.Lacks; l != nil && l.Ejection != "" {
		p.Eject = nil
		c.problem(kind, object, ReasonLacking, fmt.Sprintf("annotation %s: %s (engine %s)", AnnotationEject, l.Ejection, l.Engine))
	}
}

// asksOwn reports whether a Gateway's routes lead to pools of its own.
func (g *gateway) asksOwn() bool {
	return g.certificateName != "" || g.object != nil && g.object.Annotations[AnnotationEject] != ""
}
