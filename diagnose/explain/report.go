package explain

import (
	"net/netip"

	"github.com/fairway-net/fairway/compile"
)

// SchemaVersion is of the reports' JSON; fields are only ever added to it.
const SchemaVersion = "fairway.dev/diagnosis/v1"

// Report answers a question.
type Report struct {
	APIVersion string            `json:"apiVersion"` // SchemaVersion
	Kind       string            `json:"kind"`       // "Explanation"
	Target     string            `json:"target"`     // as it was typed
	From       Source            `json:"from"`
	Answer     string            `json:"answer"` // one line
	Outcome    string            `json:"outcome"`
	Service    *ServiceInfo      `json:"service,omitempty"`
	Views      []View            `json:"views,omitempty"`
	Endpoints  []Endpoint        `json:"endpoints,omitempty"`
	Kernel     []Kernel          `json:"kernel,omitempty"`   // of nodes whose agents answer
	Problems   []compile.Problem `json:"problems,omitempty"` // what the Services say and nodes can't do
	Notes      []string          `json:"notes,omitempty"`
	NotChecked []string          `json:"notChecked,omitempty"`
	Next       []string          `json:"next,omitempty"` // commands

	target   Target
	shown    []View // the views in the text
	notAsked int    // agents that could not be
	inForce  bool   // only agents say which endpoints there are
}

// The outcomes of a report.
const (
	OutcomeForwarded = "forwarded" // every packet asked about is
	OutcomeNot       = "not forwarded"
	OutcomeUnknown   = "could not tell"
)

// ServiceInfo is what is said of the Service.
type ServiceInfo struct {
	Namespace     string       `json:"namespace"`
	Name          string       `json:"name"`
	Type          string       `json:"type"`
	Selector      string       `json:"selector,omitempty"`
	Addresses     []netip.Addr `json:"addresses,omitempty"`
	Internal      string       `json:"internalTrafficPolicy,omitempty"`
	External      string       `json:"externalTrafficPolicy,omitempty"`
	PodsSelected  int          `json:"podsSelected"`
	SliceCount    int          `json:"endpointSlices"`
	ExternalName  string       `json:"externalName,omitempty"`
	LoadBalancers []string     `json:"loadBalancer,omitempty"`
}

// Endpoint gives names and conditions to an endpoint's address.
type Endpoint struct {
	Addr   netip.Addr `json:"address"`
	Slice  string     `json:"slice"`
	Pod    string     `json:"pod,omitempty"`
	Node   string     `json:"node,omitempty"`
	Zone   string     `json:"zone,omitempty"`
	Detail string     `json:"detail,omitempty"` // why it isn't ready, since when
}

// Kernel is what the kernel of a node holds of the Service, beside what it should.
type Kernel struct {
	Node        string   `json:"node"`
	Mode        string   `json:"mode"`
	Objects     []string `json:"objects,omitempty"`     // that should be there
	Differences []string `json:"differences,omitempty"` // "missing element ...", "unexpected ..."
}

// ExitCode is what the command ends with: 0 forwarded, 1 not, 2 could not tell.
func (r *Report) ExitCode() int {
	switch r.Outcome {
	case OutcomeForwarded:
		return 0
	case OutcomeNot:
		return 1
	}
	return 2
}
