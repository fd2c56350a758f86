package hook

// State is what a target is to bring about. It is handed on as JSON; fields are
// added, never renamed.
type State struct {
	// Generation grows with every state, also over restarts and from one
	// process to another.
	Generation int64 `json:"generation"`
	// Full says that Services are all there are. Otherwise they are those
	// that Changes are about, and the others are as they were.
	Full     bool       `json:"full"`
	Services []*Service `json:"services"`
	// Nodes are for load balancers that send traffic to node ports.
	Nodes []*Node `json:"nodes"`
	// Changes are since the state that was last taken; none at the first.
	Changes []Change `json:"changes"`
}

// Service is a Service as a load balancer sees it.
type Service struct {
	Namespace             string            `json:"namespace"`
	Name                  string            `json:"name"`
	Type                  string            `json:"type"`
	Class                 string            `json:"class,omitempty"`
	Labels                map[string]string `json:"labels,omitempty"`
	Annotations           map[string]string `json:"annotations,omitempty"`
	ClusterIPs            []string          `json:"clusterIPs,omitempty"`
	ExternalIPs           []string          `json:"externalIPs,omitempty"`
	RequestedIP           string            `json:"requestedIP,omitempty"`
	SourceRanges          []string          `json:"sourceRanges,omitempty"`
	ExternalTrafficPolicy string            `json:"externalTrafficPolicy,omitempty"`
	HealthCheckNodePort   int32             `json:"healthCheckNodePort,omitempty"`
	// AffinitySeconds is how long a client keeps its endpoint; 0 is not at all.
	AffinitySeconds int32 `json:"affinitySeconds,omitempty"`
	// Addresses are those in the status, if somebody else gives them.
	Addresses []string `json:"addresses,omitempty"`
	Ports     []*Port  `json:"ports"`

	age string // orders Services that want the same: the older comes first
}

// Key is NAMESPACE/NAME.
func (s *Service) Key() string { return s.Namespace + "/" + s.Name }

// Port is a port of a Service, and where it leads.
type Port struct {
	Name      string      `json:"name,omitempty"`
	Protocol  string      `json:"protocol"`
	Port      int32       `json:"port"`
	NodePort  int32       `json:"nodePort,omitempty"`
	Endpoints []*Endpoint `json:"endpoints"`
}

// Endpoint is where a port leads.
type Endpoint struct {
	Address string `json:"address"`
	Port    int32  `json:"port"`
	// Ready endpoints take new connections. Draining ones only go on with those
	// they have.
	Ready    bool   `json:"ready"`
	Draining bool   `json:"draining,omitempty"`
	Weight   int    `json:"weight"`
	Node     string `json:"node,omitempty"`
	Zone     string `json:"zone,omitempty"`
}

// Node is a machine of the cluster.
type Node struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
	Ready     bool     `json:"ready"`
	Zone      string   `json:"zone,omitempty"`
}

// Change is one difference between two states.
type Change struct {
	What    string `json:"what"` // added, changed or removed
	Kind    string `json:"kind"` // service, endpoint or node
	Service string `json:"service,omitempty"`
	// Port is the name or number of the Service's port that an endpoint is of.
	Port     string    `json:"port,omitempty"`
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	Node     string    `json:"node,omitempty"`
}
