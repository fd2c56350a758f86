package check

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is the protocol that a check speaks.
type Kind string

// The kinds of checks. Only a file on the machine itself may ask for Exec.
const (
	HTTP  Kind = "http"
	HTTPS Kind = "https"
	TCP   Kind = "tcp"
	TLS   Kind = "tls"
	GRPC  Kind = "grpc"
	UDP   Kind = "udp"
	ICMP  Kind = "icmp"
	Exec  Kind = "exec"
	// Unit asks systemd whether a unit is active; from files only, as Exec.
	Unit Kind = "unit"
)

// Spec is one check: what is asked, how often, and which answer is good.
type Spec struct {
	Kind Kind
	// Path is what http and https checks get: a path with its query.
	Path string
	// Payload is what udp checks send.
	Payload string
	// Service is the name that grpc checks ask about (grpc.health.v1); "" asks
	// about the server.
	Service string
	// Command is what exec checks run, with its arguments; of unit checks the unit.
	Command []string

	// Port is the name or number of the port to ask; "" is the first.
	Port string
	// Host is the name given to the server (Host header, TLS server name); ""
	// gives the endpoint's address.
	Host string

	Interval, Timeout time.Duration
	// Rise is how many good answers in a row make an unhealthy endpoint healthy;
	// Fall is how many bad ones make a healthy endpoint unhealthy.
	Rise, Fall int
	// Status are the good status codes of http and https; empty is 200 to 399.
	Status []StatusRange
	// Text must be in the answer of http, https and udp checks; "" expects none.
	Text string
}

// StatusRange is a range of HTTP status codes, both ends included.
type StatusRange struct{ From, To int }

// The defaults of a check, and the shortest interval and timeout.
const (
	DefaultInterval = 2 * time.Second
	DefaultTimeout  = time.Second
	DefaultRise     = 2
	DefaultFall     = 3
	Shortest        = 100 * time.Millisecond
)

// Parse reads the text of a check: http:/healthz, https:/, tcp, tls, grpc,
// grpc:service, udp:payload, icmp or exec:COMMAND. The rest of the Spec has its
// defaults.
func Parse(text string) (Spec, error) {
	s := Spec{Interval: DefaultInterval, Timeout: DefaultTimeout, Rise: DefaultRise, Fall: DefaultFall}
	name, rest, given := strings.Cut(strings.TrimSpace(text), ":")
	s.Kind = Kind(name)
	var err error
	switch s.Kind {
	case HTTP, HTTPS:
		s.Path, err = parsePath(rest)
	case TCP, TLS, ICMP:
		if given && rest != "" {
			err = fmt.Errorf("%s takes nothing after the colon", name)
		}
	case GRPC:
		s.Service = rest
		if strings.ContainsFunc(rest, isControl) || len(rest) > 255 {
			err = errors.New("the gRPC service's name is too long or has control characters")
		}
	case UDP:
		s.Payload, err = parsePayload(rest)
	case Exec:
		if s.Command = strings.Fields(rest); len(s.Command) == 0 {
			err = errors.New("exec needs a command, such as exec:/usr/local/bin/check-db")
		}
	case Unit:
		if s.Command = []string{rest}; rest == "" {
			err = errors.New("needs a systemd unit, such as unit:nginx.service")
		}
	default:
		err = errors.New("must be http:/PATH, https:/PATH, tcp, tls, grpc[:SERVICE], udp:PAYLOAD or icmp")
	}
	if err != nil {
		return Spec{}, fmt.Errorf("%q: %w", text, err)
	}
	return s, nil
}

// parsePath accepts what can stand in a request line as it is.
func parsePath(path string) (string, error) {
	if path == "" {
		return "/", nil
	}
	u, err := url.ParseRequestURI(path)
	switch {
	case err != nil || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || u.Host != "":
		return "", errors.New("the path must begin with one / and be a valid path, such as http:/healthz")
	case strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' }) || len(path) > 1024:
		return "", errors.New("the path must be up to 1024 printable ASCII characters without spaces")
	}
	return path, nil
}

// maxPayload keeps a datagram in one packet of every network.
const maxPayload = 1024

// parsePayload reads Go's escapes, such as \x00 and \n.
func parsePayload(text string) (string, error) {
	payload := text
	if strings.Contains(text, `\`) {
		var err error
		if payload, err = strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`); err != nil {
			return "", errors.New(`the payload has an escape that can't be read; \xNN, \n, \r, \t and \\ can`)
		}
	}
	if len(payload) > maxPayload {
		return "", fmt.Errorf("the payload has %d bytes, and at most %d are sent", len(payload), maxPayload)
	}
	return payload, nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// Remote reports whether machines other than the endpoint's own can run the check.
func (s Spec) Remote() bool { return s.Kind != Exec && s.Kind != Unit }

// Equal reports whether two specs ask the same in the same way.
func (s Spec) Equal(o Spec) bool {
	return s.Kind == o.Kind && s.Path == o.Path && s.Payload == o.Payload && s.Service == o.Service &&
		slices.Equal(s.Command, o.Command) && s.Port == o.Port && s.Host == o.Host &&
		s.Interval == o.Interval && s.Timeout == o.Timeout && s.Rise == o.Rise && s.Fall == o.Fall &&
		slices.Equal(s.Status, o.Status) && s.Text == o.Text
}
