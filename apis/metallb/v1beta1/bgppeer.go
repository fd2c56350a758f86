package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BGPPeerSpec is the old form of a peer; see v1beta2.BGPPeerSpec, of which its
// JSON is a subset.
type BGPPeerSpec struct {
	// MyASN is this side's AS number.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:Format=int64
	MyASN uint32 `json:"myASN"`
	// ASN is the peer's AS number.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:Format=int64
	ASN uint32 `json:"peerASN"`
	// Address of the peer.
	Address string `json:"peerAddress"`
	// +optional
	SrcAddress string `json:"sourceAddress,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16384
	Port uint16 `json:"peerPort,omitempty"`
	// +optional
	HoldTime metav1.Duration `json:"holdTime,omitempty"`
	// +optional
	KeepaliveTime metav1.Duration `json:"keepaliveTime,omitempty"`
	// +optional
	RouterID string `json:"routerID,omitempty"`
	// +optional
	NodeSelectors []metav1.LabelSelector `json:"nodeSelectors,omitempty"`
	// +optional
	Password string `json:"password,omitempty"`
	// +optional
	BFDProfile string `json:"bfdProfile,omitempty"`
	// +optional
	EBGPMultiHop bool `json:"ebgpMultiHop,omitempty"`
}

// BGPPeer is a router that sessions are held with, in its old form.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=bgppeers,scope=Namespaced
// +kubebuilder:deprecatedversion:warning="metallb.io/v1beta1 BGPPeer is deprecated; use v1beta2"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.peerAddress`
// +kubebuilder:printcolumn:name="ASN",type=string,JSONPath=`.spec.peerASN`
// +kubebuilder:printcolumn:name="BFD Profile",type=string,JSONPath=`.spec.bfdProfile`
type BGPPeer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec BGPPeerSpec `json:"spec,omitempty"`
	// +optional
	Status AdvertisementStatus `json:"status,omitempty"`
}

// BGPPeerList is a list of BGPPeers.
//
// +kubebuilder:object:root=true
type BGPPeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BGPPeer `json:"items"`
}
