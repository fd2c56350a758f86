package v1beta2

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DynamicASN accepts a peer by whether its AS is one's own.
//
// +kubebuilder:validation:Enum=internal;external
type DynamicASN string

// The two kinds of peers.
const (
	InternalASN DynamicASN = "internal"
	ExternalASN DynamicASN = "external"
)

// BGPPeerSpec says how to hold a session with a router.
type BGPPeerSpec struct {
	// MyASN is this side's AS number.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:Format=int64
	MyASN uint32 `json:"myASN"`
	// LocalASN is shown to this peer in the place of MyASN.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:Format=int64
	LocalASN uint32 `json:"localASN,omitempty"`
	// ASN is the peer's AS number. Either this or DynamicASN is given.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:validation:Format=int64
	ASN uint32 `json:"peerASN,omitempty"`
	// DynamicASN accepts any AS number that is MyASN (internal), or that is not
	// (external).
	// +optional
	DynamicASN DynamicASN `json:"dynamicASN,omitempty"`
	// Address of the peer. Either this or Interface is given.
	// +optional
	Address string `json:"peerAddress,omitempty"`
	// Interface on which the peer is found by its router advertisements.
	// +optional
	Interface string `json:"interface,omitempty"`
	// SrcAddress is this side's address of the session.
	// +optional
	SrcAddress string `json:"sourceAddress,omitempty"`
	// Port of the peer.
	// +optional
	// +kubebuilder:default:=179
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16384
	Port uint16 `json:"peerPort,omitempty"`
	// HoldTime after which a silent peer is lost (RFC 4271): 0 or 3 s and more;
	// 90 s if not given.
	// +optional
	HoldTime *metav1.Duration `json:"holdTime,omitempty"`
	// KeepaliveTime between keepalives; a third of the hold time if not given.
	// +optional
	KeepaliveTime *metav1.Duration `json:"keepaliveTime,omitempty"`
	// ConnectTime between attempts to connect.
	// +optional
	ConnectTime *metav1.Duration `json:"connectTime,omitempty"`
	// RouterID of this side.
	// +optional
	RouterID string `json:"routerID,omitempty"`
	// NodeSelectors select the nodes that hold the session; none: all nodes.
	// +optional
	NodeSelectors []metav1.LabelSelector `json:"nodeSelectors,omitempty"`
	// Password of TCP MD5 (RFC 2385).
	// +optional
	Password string `json:"password,omitempty"`
	// PasswordSecret is a Secret of type kubernetes.io/basic-auth in the same
	// namespace that has the password.
	// +optional
	PasswordSecret corev1.SecretReference `json:"passwordSecret,omitempty"`
	// BFDProfile by name; none: no BFD.
	// +optional
	BFDProfile string `json:"bfdProfile,omitempty"`
	// EnableGracefulRestart keeps routes while this side restarts (RFC 4724).
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="EnableGracefulRestart cannot be changed after creation"
	EnableGracefulRestart bool `json:"enableGracefulRestart,omitempty"`
	// EBGPMultiHop allows an external peer that is more than one hop away.
	// +optional
	EBGPMultiHop bool `json:"ebgpMultiHop,omitempty"`
	// VRFName is the VRF device that the peer is reached through.
	// +optional
	VRFName string `json:"vrf,omitempty"`
	// DisableMP announces only the family of the session's addresses.
	// Deprecated: this is what happens without DualStackAddressFamily.
	// +optional
	// +kubebuilder:default:=false
	DisableMP bool `json:"disableMP,omitempty"`
	// DualStackAddressFamily announces both families in one session.
	// +optional
	// +kubebuilder:default:=false
	DualStackAddressFamily bool `json:"dualStackAddressFamily,omitempty"`
}

// BGPPeerStatus is empty; see ServiceBGPStatus.
type BGPPeerStatus struct{}

// BGPPeer is a router that sessions are held with.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=bgppeers,scope=Namespaced
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.peerAddress`
// +kubebuilder:printcolumn:name="ASN",type=string,JSONPath=`.spec.peerASN`
// +kubebuilder:printcolumn:name="BFD Profile",type=string,JSONPath=`.spec.bfdProfile`
// +kubebuilder:printcolumn:name="Multi Hops",type=string,JSONPath=`.spec.ebgpMultiHop`
type BGPPeer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec BGPPeerSpec `json:"spec,omitempty"`
	// +optional
	Status BGPPeerStatus `json:"status,omitempty"`
}

// BGPPeerList is a list of BGPPeers.
//
// +kubebuilder:object:root=true
type BGPPeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BGPPeer `json:"items"`
}
