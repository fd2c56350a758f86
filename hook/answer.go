package hook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Answer is what a target says about a state, as JSON. An empty one says nothing.
type Answer struct {
	// Services by NAMESPACE/NAME.
	Services map[string]ServiceAnswer `json:"services"`

	nonsense string // why it couldn't be read, if so
}

// ServiceAnswer is what a target says about one Service.
type ServiceAnswer struct {
	// Ingress is for the Service's status; nil leaves it, [] clears it.
	Ingress *[]Ingress `json:"ingress"`
	// Error says that this Service isn't in force. The state is delivered again.
	Error string `json:"error"`
	// Warning is what its author should know, and trying again doesn't change.
	Warning string `json:"warning"`
}

// warn adds a warning about a Service.
func (a *Answer) warn(key, text string) {
	s := a.Services[key]
	if s.Warning != "" {
		text = s.Warning + "; " + text
	}
	s.Warning = text
	a.Services[key] = s
}

// Ingress is one entry of status.loadBalancer.ingress.
type Ingress struct {
	IP       string `json:"ip"`
	Hostname string `json:"hostname"`
}

// parseAnswer reads an answer. One that can't be read is noted and says nothing:
// that the state is in force was said by the exit code or the status.
func parseAnswer(data []byte) *Answer {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return &Answer{}
	}
	a := &Answer{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(a); err != nil {
		return &Answer{nonsense: fmt.Sprintf("the answer is not as it must be (%v): %s", err, firstLine(string(data)))}
	}
	return a
}

// status is what is to stand in a Service's status. An error names the entry.
func (s *ServiceAnswer) status() ([]corev1.LoadBalancerIngress, error) {
	var list []corev1.LoadBalancerIngress
	for i, in := range *s.Ingress {
		switch {
		case (in.IP == "") == (in.Hostname == ""):
			return nil, fmt.Errorf("ingress[%d]: must have an ip or a hostname", i)
		case in.IP != "":
			a, err := netip.ParseAddr(in.IP)
			if err != nil || a.Zone() != "" {
				return nil, fmt.Errorf("ingress[%d].ip %q: not an IP address", i, firstLine(in.IP))
			}
			list = append(list, corev1.LoadBalancerIngress{IP: a.Unmap().String()})
		default:
			name := strings.TrimSuffix(in.Hostname, ".")
			if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
				return nil, fmt.Errorf("ingress[%d].hostname %q: not a host name", i, firstLine(in.Hostname))
			}
			list = append(list, corev1.LoadBalancerIngress{Hostname: name})
		}
	}
	return list, nil
}
