package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPAddressPoolSpec says which addresses a pool has and who gets them.
type IPAddressPoolSpec struct {
	// Addresses are CIDRs ("192.0.2.0/24") and ranges ("192.0.2.10-192.0.2.20")
	// of either family. No two pools may overlap.
	Addresses []string `json:"addresses"`
	// AutoAssign lets Services that ask for nothing have an address of the pool.
	// +optional
	// +kubebuilder:default:=true
	AutoAssign *bool `json:"autoAssign,omitempty"`
	// AvoidBuggyIPs leaves out IPv4 addresses that end with .0 or .255.
	// +optional
	// +kubebuilder:default:=false
	AvoidBuggyIPs bool `json:"avoidBuggyIPs,omitempty"`
	// AllocateTo restricts the pool to some Services.
	// +optional
	AllocateTo *ServiceAllocation `json:"serviceAllocation,omitempty"`
}

// ServiceAllocation selects the Services that a pool is for.
type ServiceAllocation struct {
	// Priority of the pool among those that match: lower ones first, 0 last.
	// +optional
	Priority int `json:"priority,omitempty"`
	// Namespaces by name whose Services the pool is for.
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
	// NamespaceSelectors select further such namespaces by label.
	// +optional
	NamespaceSelectors []metav1.LabelSelector `json:"namespaceSelectors,omitempty"`
	// ServiceSelectors select Services by label. Where namespaces are given
	// too, both must match.
	// +optional
	ServiceSelectors []metav1.LabelSelector `json:"serviceSelectors,omitempty"`
}

// IPAddressPoolStatus counts a pool's addresses.
type IPAddressPoolStatus struct {
	// AssignedIPv4 is the number of IPv4 addresses that Services have.
	AssignedIPv4 int64 `json:"assignedIPv4"`
	// AssignedIPv6 is the number of IPv6 addresses that Services have.
	AssignedIPv6 int64 `json:"assignedIPv6"`
	// AvailableIPv4 is the number of IPv4 addresses left.
	AvailableIPv4 int64 `json:"availableIPv4"`
	// AvailableIPv6 is the number of IPv6 addresses left.
	AvailableIPv6 int64 `json:"availableIPv6"`
}

// IPAddressPool is a pool of addresses for Services of type LoadBalancer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=ipaddresspools,scope=Namespaced
// +kubebuilder:printcolumn:name="Auto Assign",type=boolean,JSONPath=`.spec.autoAssign`
// +kubebuilder:printcolumn:name="Avoid Buggy IPs",type=boolean,JSONPath=`.spec.avoidBuggyIPs`
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`
type IPAddressPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IPAddressPoolSpec `json:"spec"`
	// +optional
	Status IPAddressPoolStatus `json:"status,omitempty"`
}

// IPAddressPoolList is a list of IPAddressPools.
//
// +kubebuilder:object:root=true
type IPAddressPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPAddressPool `json:"items"`
}
