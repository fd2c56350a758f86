package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// L2AdvertisementSpec says which addresses are announced by ARP and NDP, by
// which nodes, on which interfaces.
type L2AdvertisementSpec struct {
	// IPAddressPools by name. With no pool and no selector: all pools.
	// +optional
	IPAddressPools []string `json:"ipAddressPools,omitempty"`
	// IPAddressPoolSelectors select further pools by label.
	// +optional
	IPAddressPoolSelectors []metav1.LabelSelector `json:"ipAddressPoolSelectors,omitempty"`
	// NodeSelectors select the nodes that may announce; none: all nodes.
	// +optional
	NodeSelectors []metav1.LabelSelector `json:"nodeSelectors,omitempty"`
	// Interfaces by name on which to announce; none: all interfaces.
	// +optional
	Interfaces []string `json:"interfaces,omitempty"`
	// ServiceSelectors select Services by label; none: all Services.
	// +optional
	ServiceSelectors []metav1.LabelSelector `json:"serviceSelectors,omitempty"`
	// PreferredNodeSelectors weigh the nodes that may announce: the highest sum
	// of the weights of what matches wins.
	// +optional
	PreferredNodeSelectors []PreferredNodeSelector `json:"preferredNodeSelectors,omitempty"`
}

// PreferredNodeSelector gives nodes a weight.
type PreferredNodeSelector struct {
	// Weight of the nodes that match.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight"`
	// Preference selects the nodes.
	Preference metav1.LabelSelector `json:"preference"`
}

// L2Advertisement announces addresses on layer 2.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=l2advertisements,scope=Namespaced
// +kubebuilder:printcolumn:name="IPAddressPools",type=string,JSONPath=`.spec.ipAddressPools`
// +kubebuilder:printcolumn:name="IPAddressPool Selectors",type=string,JSONPath=`.spec.ipAddressPoolSelectors`
// +kubebuilder:printcolumn:name="Interfaces",type=string,JSONPath=`.spec.interfaces`
// +kubebuilder:printcolumn:name="Node Selectors",type=string,priority=10,JSONPath=`.spec.nodeSelectors`
type L2Advertisement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec L2AdvertisementSpec `json:"spec,omitempty"`
	// +optional
	Status AdvertisementStatus `json:"status,omitempty"`
}

// AdvertisementStatus is empty: who announces what is in ServiceL2Status and
// ServiceBGPStatus.
type AdvertisementStatus struct{}

// L2AdvertisementList is a list of L2Advertisements.
//
// +kubebuilder:object:root=true
type L2AdvertisementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []L2Advertisement `json:"items"`
}

// BGPAdvertisementSpec says which addresses are announced by BGP, and how.
type BGPAdvertisementSpec struct {
	// AggregationLength is the length of the IPv4 prefix that is announced for
	// an address.
	// +optional
	// +kubebuilder:default:=32
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	AggregationLength *int32 `json:"aggregationLength,omitempty"`
	// AggregationLengthV6 is AggregationLength for IPv6.
	// +optional
	// +kubebuilder:default:=128
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	AggregationLengthV6 *int32 `json:"aggregationLengthV6,omitempty"`
	// LocalPref is the attribute LOCAL_PREF, which peers of the own AS see.
	// +optional
	// +kubebuilder:validation:Format=int64
	LocalPref uint32 `json:"localPref,omitempty"`
	// Communities are "a:b", "large:a:b:c", or names defined by a Community.
	// +optional
	Communities []string `json:"communities,omitempty"`
	// IPAddressPools by name. With no pool and no selector: all pools.
	// +optional
	IPAddressPools []string `json:"ipAddressPools,omitempty"`
	// IPAddressPoolSelectors select further pools by label.
	// +optional
	IPAddressPoolSelectors []metav1.LabelSelector `json:"ipAddressPoolSelectors,omitempty"`
	// NodeSelectors select the nodes that announce; none: all nodes.
	// +optional
	NodeSelectors []metav1.LabelSelector `json:"nodeSelectors,omitempty"`
	// Peers by name to announce to; none: all.
	// +optional
	Peers []string `json:"peers,omitempty"`
	// ServiceSelectors select Services by label; none: all. Not together with
	// an aggregation length.
	// +optional
	ServiceSelectors []metav1.LabelSelector `json:"serviceSelectors,omitempty"`
}

// BGPAdvertisement announces addresses by BGP.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=bgpadvertisements,scope=Namespaced
// +kubebuilder:printcolumn:name="IPAddressPools",type=string,JSONPath=`.spec.ipAddressPools`
// +kubebuilder:printcolumn:name="IPAddressPool Selectors",type=string,JSONPath=`.spec.ipAddressPoolSelectors`
// +kubebuilder:printcolumn:name="Peers",type=string,JSONPath=`.spec.peers`
// +kubebuilder:printcolumn:name="Node Selectors",type=string,priority=10,JSONPath=`.spec.nodeSelectors`
type BGPAdvertisement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec BGPAdvertisementSpec `json:"spec,omitempty"`
	// +optional
	Status AdvertisementStatus `json:"status,omitempty"`
}

// BGPAdvertisementList is a list of BGPAdvertisements.
//
// +kubebuilder:object:root=true
type BGPAdvertisementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BGPAdvertisement `json:"items"`
}

// CommunitySpec gives names to BGP communities.
type CommunitySpec struct {
	// +optional
	Communities []CommunityAlias `json:"communities,omitempty"`
}

// CommunityAlias is the name of a community.
type CommunityAlias struct {
	// Name that BGPAdvertisements use.
	Name string `json:"name,omitempty"`
	// Value is "a:b" or "large:a:b:c".
	Value string `json:"value,omitempty"`
}

// Community gives names to BGP communities, for BGPAdvertisements.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=communities,scope=Namespaced
type Community struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec CommunitySpec `json:"spec,omitempty"`
	// +optional
	Status AdvertisementStatus `json:"status,omitempty"`
}

// CommunityList is a list of Communities.
//
// +kubebuilder:object:root=true
type CommunityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Community `json:"items"`
}
