package hook

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// functions are those of templates: what consul-template's users know, with
// Services and endpoints in the place of Consul's. What another function does
// with a value comes last, so that values can be piped.
func functions(s *State) template.FuncMap {
	f := template.FuncMap{
		"services": func() []*Service { return s.Services },
		"service":  func(name string) ([]ServiceEndpoint, error) { return s.endpoints(name) },
		"nodes":    func() []*Node { return s.Nodes },
		"ready":    func(p *Port) []*Endpoint { return p.ready() },
		// ofFamily keeps the endpoints of "ipv4" or "ipv6".
		"ofFamily": func(family string, list []*Endpoint) []*Endpoint {
			return slices.DeleteFunc(slices.Clone(list), func(e *Endpoint) bool { return strings.Contains(e.Address, ":") != (family == "ipv6") })
		},
		"byWeight": byWeight,
		"env":      os.Getenv,
		"file":     readFile,
		"timestamp": func(layout ...string) string {
			return time.Now().UTC().Format(cmp.Or(append(layout, time.RFC3339)...))
		},
		"annotation": func(s *Service, name string, otherwise ...string) string {
			return cmp.Or(append([]string{printable(s.Annotations[name])}, otherwise...)...)
		},
	}
	for _, more := range []template.FuncMap{textFunctions(), numberFunctions(), listFunctions(), encodingFunctions()} {
		for name, function := range more {
			f[name] = function
		}
	}
	return f
}

// printable is a text without control characters: what a user of the API wrote must not
// begin a line of its own in somebody's configuration.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// hostNames are the host names in a text, which commas or spaces divide; a first label
// * is one. What isn't a host name is left out: it could be anything, and mean anything
// in the configuration that it is put into.
func hostNames(text string) []string {
	names := []string{}
	for name := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		name = strings.TrimSuffix(strings.ToLower(name), ".")
		if len(validation.IsDNS1123Subdomain(strings.TrimPrefix(name, "*."))) == 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// ServiceEndpoint is an endpoint as the function service gives it: with the names
// that consul-template's have.
type ServiceEndpoint struct {
	*Endpoint
	Name   string // of the Service
	ID     string // ADDRESS:PORT
	Status string // passing
}

// endpoints are the ready ones of a Service's first port, or of the named one:
// NAME, NAMESPACE/NAME, PORT.NAME or PORT.NAMESPACE/NAME. A Service that
// isn't there has none.
func (s *State) endpoints(name string) ([]ServiceEndpoint, error) {
	port, rest, named := strings.Cut(name, ".")
	if !named {
		port, rest = "", name
	}
	if !strings.Contains(rest, "/") {
		rest = "default/" + rest
	}
	list := []ServiceEndpoint{}
	for _, service := range s.Services {
		if service.Key() != rest {
			continue
		}
		for _, p := range service.Ports {
			if port != "" && p.id() != port {
				continue
			}
			for _, e := range p.ready() {
				list = append(list, ServiceEndpoint{Endpoint: e, Name: service.Name, ID: e.Address + ":" + strconv.Itoa(int(e.Port)), Status: "passing"})
			}
			return list, nil
		}
		return nil, fmt.Errorf("service %q: there is no such port", name)
	}
	return list, nil
}

func (p *Port) ready() []*Endpoint {
	return slices.DeleteFunc(slices.Clone(p.Endpoints), func(e *Endpoint) bool { return !e.Ready })
}

// byWeight has each endpoint as often as its weight says, with what all weights
// have in common divided out.
func byWeight(list []*Endpoint) []*Endpoint {
	divisor := 0
	for _, e := range list {
		for a, b := divisor, e.Weight; ; a, b = b, a%b {
			if b == 0 {
				divisor = a
				break
			}
		}
	}
	var out []*Endpoint
	for _, e := range list {
		if e.Weight > 0 {
			out = append(out, slices.Repeat([]*Endpoint{e}, e.Weight/divisor)...)
		}
	}
	return out
}

func readFile(path string) (string, error) {
	data, err := os.ReadFile(path)
	return string(data), err
}

func textFunctions() template.FuncMap {
	return template.FuncMap{
		"toLower": strings.ToLower, "toUpper": strings.ToUpper, "trimSpace": strings.TrimSpace,
		"toTitle":    func(s string) string { return strings.ToUpper(s[:min(1, len(s))]) + s[min(1, len(s)):] },
		"trim":       func(cut, s string) string { return strings.Trim(s, cut) },
		"trimPrefix": func(prefix, s string) string { return strings.TrimPrefix(s, prefix) },
		"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
		"split":      func(separator, s string) []string { return strings.Split(s, separator) },
		"join":       func(separator string, list []string) string { return strings.Join(list, separator) },
		"replaceAll": func(from, to, s string) string { return strings.ReplaceAll(s, from, to) },
		"regexMatch": func(expression, s string) (bool, error) { return regexp.MatchString(expression, s) },
		"regexReplaceAll": func(expression, to, s string) (string, error) {
			r, err := regexp.Compile(expression)
			if err != nil {
				return "", err
			}
			return r.ReplaceAllString(s, to), nil
		},
		"indent": func(spaces int, s string) string {
			pad := strings.Repeat(" ", max(0, spaces))
			return pad + strings.ReplaceAll(s, "\n", "\n"+pad)
		},
		"hostNames": hostNames,
		// identifier makes of a text what programs take for a name.
		"identifier": func(s string) string { return regexp.MustCompile(`[^A-Za-z0-9_]`).ReplaceAllString(s, "_") },
		// host puts IPv6 addresses into brackets.
		"host": func(address string) string {
			if strings.Contains(address, ":") {
				return "[" + address + "]"
			}
			return address
		},
		"isIPv6": func(address string) bool { return strings.Contains(address, ":") },
	}
}

var errZero = errors.New("division by zero")

func numberFunctions() template.FuncMap {
	number := func(v any) (int64, error) { return strconv.ParseInt(fmt.Sprint(v), 10, 64) }
	with := func(do func(b, a int64) (int64, error)) func(any, any) (int64, error) {
		return func(b, a any) (int64, error) {
			x, err := number(a)
			y, err2 := number(b)
			if err := errors.Join(err, err2); err != nil {
				return 0, err
			}
			return do(y, x)
		}
	}
	return template.FuncMap{
		"add": with(func(b, a int64) (int64, error) { return a + b, nil }), "subtract": with(func(b, a int64) (int64, error) { return a - b, nil }),
		"multiply": with(func(b, a int64) (int64, error) { return a * b, nil }),
		"divide": with(func(b, a int64) (int64, error) {
			if b == 0 {
				return 0, errZero
			}
			return a / b, nil
		}),
		"modulo": with(func(b, a int64) (int64, error) {
			if b == 0 {
				return 0, errZero
			}
			return a % b, nil
		}),
		"minimum": with(func(b, a int64) (int64, error) { return min(a, b), nil }), "maximum": with(func(b, a int64) (int64, error) { return max(a, b), nil }),
		"parseInt":   func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) },
		"parseUint":  func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) },
		"parseFloat": func(s string) (float64, error) { return strconv.ParseFloat(s, 64) },
		"parseBool":  strconv.ParseBool,
	}
}

// mostLoops keeps a template from filling the disk by a slip.
const mostLoops = 100_000

func listFunctions() template.FuncMap {
	return template.FuncMap{
		"contains": func(value string, list []string) bool { return slices.Contains(list, value) },
		"containsAny": func(values, list []string) bool {
			return slices.ContainsFunc(values, func(v string) bool { return slices.Contains(list, v) })
		},
		"containsAll": func(values, list []string) bool {
			return !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(list, v) })
		},
		"in":   func(list []string, value string) bool { return slices.Contains(list, value) },
		"list": func(values ...string) []string { return values },
		"loop": func(bounds ...int) ([]int, error) {
			from, to := 0, 0
			switch len(bounds) {
			case 1:
				to = bounds[0]
			case 2:
				from, to = bounds[0], bounds[1]
			default:
				return nil, fmt.Errorf("loop takes one or two numbers, not %d", len(bounds))
			}
			if to-from > mostLoops {
				return nil, fmt.Errorf("loop of %d: at most %d", to-from, mostLoops)
			}
			var list []int
			for ; from < to; from++ {
				list = append(list, from)
			}
			return list, nil
		},
	}
}

func encodingFunctions() template.FuncMap {
	return template.FuncMap{
		"toJSON": func(v any) (string, error) { data, err := json.Marshal(v); return string(data), err },
		"toJSONPretty": func(v any) (string, error) {
			data, err := json.MarshalIndent(v, "", "  ")
			return string(data), err
		},
		"toYAML": func(v any) (string, error) {
			data, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(data), "\n"), err
		},
		"parseJSON": func(s string) (v any, err error) {
			err = json.Unmarshal([]byte(s), &v)
			return v, err
		},
		"parseYAML": func(s string) (v any, err error) {
			err = yaml.Unmarshal([]byte(s), &v)
			return v, err
		},
		"base64Encode": func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"base64Decode": func(s string) (string, error) {
			data, err := base64.StdEncoding.DecodeString(s)
			return string(data), err
		},
		"sha256Hex": func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) },
	}
}
