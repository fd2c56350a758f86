package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NoSpec is the spec of objects that only report.
type NoSpec struct{}

// L2Status says which node answers for a Service's addresses.
type L2Status struct {
	// Node that receives the traffic.
	Node string `json:"node,omitempty"`
	// ServiceName and ServiceNamespace name the Service.
	ServiceName      string `json:"serviceName,omitempty"`
	ServiceNamespace string `json:"serviceNamespace,omitempty"`
	// Interfaces on which the node answers.
	Interfaces []InterfaceInfo `json:"interfaces,omitempty"`
}

// InterfaceInfo names a network interface.
type InterfaceInfo struct {
	// Name of the interface.
	Name string `json:"name,omitempty"`
}

// ServiceL2Status says where a Service is announced on layer 2.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=servicel2statuses,scope=Namespaced
// +kubebuilder:printcolumn:name="Allocated Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Service Name",type=string,JSONPath=`.status.serviceName`
// +kubebuilder:printcolumn:name="Service Namespace",type=string,JSONPath=`.status.serviceNamespace`
type ServiceL2Status struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec NoSpec `json:"spec,omitempty"`
	// +optional
	Status L2Status `json:"status,omitempty"`
}

// ServiceL2StatusList is a list of ServiceL2Statuses.
//
// +kubebuilder:object:root=true
type ServiceL2StatusList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ServiceL2Status `json:"items"`
}

// BGPStatus says to which peers a node announces a Service.
type BGPStatus struct {
	// Node that announces.
	Node string `json:"node,omitempty"`
	// ServiceName and ServiceNamespace name the Service.
	ServiceName      string `json:"serviceName,omitempty"`
	ServiceNamespace string `json:"serviceNamespace,omitempty"`
	// Peers by name that the Service is announced to once their sessions are up.
	Peers []string `json:"peers,omitempty"`
}

// ServiceBGPStatus says where a Service is announced by BGP.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=servicebgpstatuses,scope=Namespaced
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Service Name",type=string,JSONPath=`.status.serviceName`
// +kubebuilder:printcolumn:name="Service Namespace",type=string,JSONPath=`.status.serviceNamespace`
type ServiceBGPStatus struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec NoSpec `json:"spec,omitempty"`
	// +optional
	Status BGPStatus `json:"status,omitempty"`
}

// ServiceBGPStatusList is a list of ServiceBGPStatuses.
//
// +kubebuilder:object:root=true
type ServiceBGPStatusList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ServiceBGPStatus `json:"items"`
}

// ConfigurationResult is the outcome of reading the configuration.
//
// +kubebuilder:validation:Enum=Valid;Invalid;Unknown
type ConfigurationResult string

// The outcomes. Parts without a fault are in force in each case.
const (
	ConfigurationValid   ConfigurationResult = "Valid"
	ConfigurationInvalid ConfigurationResult = "Invalid"
	ConfigurationUnknown ConfigurationResult = "Unknown"
)

// ConfigurationStatus says what is wrong with the configuration.
type ConfigurationStatus struct {
	// +optional
	Result ConfigurationResult `json:"result,omitempty"`
	// ErrorSummary names each object with a fault and the reason.
	// +optional
	ErrorSummary string `json:"errorSummary,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConfigurationState says what one component makes of the configuration.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=configurationstates,scope=Namespaced
// +kubebuilder:printcolumn:name="Result",type=string,JSONPath=`.status.result`
// +kubebuilder:printcolumn:name="ErrorSummary",type=string,JSONPath=`.status.errorSummary`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ConfigurationState struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Status ConfigurationStatus `json:"status,omitempty"`
}

// ConfigurationStateList is a list of ConfigurationStates.
//
// +kubebuilder:object:root=true
type ConfigurationStateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ConfigurationState `json:"items"`
}
