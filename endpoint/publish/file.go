package publish

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/endpoint/check"
)

// File is a published endpoint as a file in the folder says it.
type File struct {
	Name      string   `json:"name"` // of the Service
	Namespace string   `json:"namespace,omitempty"`
	Port      int      `json:"port"` // that the process listens on
	Protocol  string   `json:"protocol,omitempty"`
	PortName  string   `json:"portName,omitempty"` // the Service's port, if it has several
	Addresses []string `json:"addresses,omitempty"`
	Weight    *int     `json:"weight,omitempty"`
	Zone      string   `json:"zone,omitempty"`
	// Check is a check as in the annotation fairway.dev/health-check, exec:COMMAND,
	// or none. Settings are its interval, timeout, rise and so on.
	Check    string         `json:"check,omitempty"`
	Settings map[string]any `json:"settings,omitempty"`
	Unit     string         `json:"unit,omitempty"` // a systemd unit in the place of Check
}

// Entry is a file that has been read and makes sense.
type Entry struct {
	Source    string // the file's name
	Service   types.NamespacedName
	Port      uint16
	Protocol  corev1.Protocol
	PortName  string
	Addresses []netip.Addr // nil: the machine's
	Weight    int          // -1 if not given
	Zone      string       // "" is the Node's
	Check     *check.Spec  // nil: the Service's, or the protocol's
	Unchecked bool         // always ready
}

// noCheck in a file asks for no checks.
const noCheck = "none"

// MaxWeight is the largest weight of an endpoint.
const MaxWeight = 100

// Parse reads a file, which may hold several documents. The entries that make
// sense are returned beside an error that names the others' fields.
func Parse(source string, data []byte) ([]Entry, error) {
	var entries []Entry
	var errs []error
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return entries, fmt.Errorf("%s: %w", source, err)
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		var f File
		err = yaml.UnmarshalStrict(document, &f)
		if err == nil {
			var e Entry
			if e, err = f.Entry(source); err == nil {
				entries = append(entries, e)
				continue
			}
		}
		errs = append(errs, fmt.Errorf("%s, document %d: %w", source, number, err))
	}
	if len(entries)+len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%s: is empty", source))
	}
	return entries, errors.Join(errs...)
}

// Entry checks what a file says. An error names the field.
func (f *File) Entry(source string) (Entry, error) {
	e := Entry{
		Source: source, Service: types.NamespacedName{Namespace: f.Namespace, Name: f.Name},
		Port: uint16(f.Port), Protocol: corev1.Protocol(strings.ToUpper(f.Protocol)), PortName: f.PortName, Weight: -1, Zone: f.Zone,
	}
	if e.Service.Namespace == "" {
		e.Service.Namespace = corev1.NamespaceDefault
	}
	if e.Protocol == "" {
		e.Protocol = corev1.ProtocolTCP
	}
	if problems := validation.IsDNS1123Label(f.Name); len(problems) > 0 {
		return e, fmt.Errorf("name %q: %s", f.Name, problems[0])
	}
	if problems := validation.IsDNS1123Label(e.Service.Namespace); len(problems) > 0 {
		return e, fmt.Errorf("namespace %q: %s", f.Namespace, problems[0])
	}
	if f.Port < 1 || f.Port > 65535 {
		return e, fmt.Errorf("port %d: must be between 1 and 65535", f.Port)
	}
	if !slices.Contains([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, e.Protocol) {
		return e, fmt.Errorf("protocol %q: must be TCP, UDP or SCTP", f.Protocol)
	}
	if problems := validation.IsDNS1123Label(f.PortName); f.PortName != "" && len(problems) > 0 {
		return e, fmt.Errorf("portName %q: %s", f.PortName, problems[0])
	}
	if problems := validation.IsValidLabelValue(f.Zone); len(problems) > 0 {
		return e, fmt.Errorf("zone %q: %s", f.Zone, problems[0])
	}
	if f.Weight != nil {
		if e.Weight = *f.Weight; e.Weight < 0 || e.Weight > MaxWeight {
			return e, fmt.Errorf("weight %d: must be between 0 and %d", e.Weight, MaxWeight)
		}
	}
	for _, text := range f.Addresses {
		a, err := netip.ParseAddr(text)
		if err == nil {
			err = check.Allowed(a)
		}
		if err != nil {
			return e, fmt.Errorf("addresses %q: must be an address of this machine that others reach: no loopback, link-local or group address", text)
		}
		if a = a.Unmap(); !slices.Contains(e.Addresses, a) {
			e.Addresses = append(e.Addresses, a)
		}
	}
	return e, f.readCheck(&e)
}

func (f *File) readCheck(e *Entry) error {
	var err error
	switch {
	case f.Unit != "" && f.Check != "":
		return fmt.Errorf("unit %q: is in the place of a check; give one of the two", f.Unit)
	case f.Check == noCheck:
		e.Unchecked = true
	case f.Unit != "":
		e.Check, err = unitCheck(f.Unit)
	case f.Check != "":
		var s check.Spec
		s, err = check.Parse(f.Check)
		e.Check = &s
		if err != nil {
			err = fmt.Errorf("check %w", err)
		}
	case e.Protocol != corev1.ProtocolTCP:
		// Whether somebody listens can't be told from outside. The Service may say how.
	}
	if err != nil {
		return err
	}
	if len(f.Settings) > 0 && e.Check == nil {
		return errors.New("settings: there is no check that they are of")
	}
	return f.readSettings(e)
}

func (f *File) readSettings(e *Entry) error {
	known := map[string]bool{}
	for _, setting := range check.Settings() {
		known[setting.Name] = true
		if value, given := f.Settings[setting.Name]; given {
			if err := setting.Set(e.Check, fmt.Sprint(value)); err != nil {
				return fmt.Errorf("settings.%s: %w", setting.Name, err)
			}
		}
	}
	for name := range f.Settings {
		if !known[name] {
			return fmt.Errorf("settings.%s: there is no such setting", name)
		}
	}
	return nil
}

// unitCheck asks systemd. It is believed at once.
func unitCheck(unit string) (*check.Spec, error) {
	if strings.HasPrefix(unit, "-") || strings.ContainsFunc(unit, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '*' || r == '/' }) {
		return nil, fmt.Errorf("unit %q: must be the name of a systemd unit, such as nginx.service", unit)
	}
	s, err := check.Parse(string(check.Unit) + ":" + unit)
	if err != nil {
		return nil, fmt.Errorf("unit %w", err)
	}
	s.Rise, s.Fall = 1, 1
	return &s, nil
}
