package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BFDProfileSpec are the settings of a BFD session (RFC 5880). Times are in
// milliseconds.
type BFDProfileSpec struct {
	// ReceiveInterval is the shortest interval between packets that this side
	// can take in; 300 if not given.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=60000
	ReceiveInterval *uint32 `json:"receiveInterval,omitempty"`
	// TransmitInterval is the interval between the packets that this side would
	// like to send; 300 if not given.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=60000
	TransmitInterval *uint32 `json:"transmitInterval,omitempty"`
	// DetectMultiplier is the number of lost packets after which the session is
	// down; 3 if not given.
	// +optional
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=255
	DetectMultiplier *uint32 `json:"detectMultiplier,omitempty"`
	// EchoInterval is the shortest interval between echo packets.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=60000
	EchoInterval *uint32 `json:"echoInterval,omitempty"`
	// EchoMode is accepted and not used.
	// +optional
	EchoMode *bool `json:"echoMode,omitempty"`
	// PassiveMode has this side wait for the other one's first packet.
	// +optional
	PassiveMode *bool `json:"passiveMode,omitempty"`
	// MinimumTTL of packets of multi-hop sessions.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=254
	MinimumTTL *uint32 `json:"minimumTtl,omitempty"`
}

// BFDProfile has the settings of the BFD sessions of the BGPPeers that name it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=bfdprofiles,scope=Namespaced
// +kubebuilder:printcolumn:name="Passive Mode",type=boolean,JSONPath=`.spec.passiveMode`
// +kubebuilder:printcolumn:name="Transmit Interval",type=integer,JSONPath=`.spec.transmitInterval`
// +kubebuilder:printcolumn:name="Receive Interval",type=integer,JSONPath=`.spec.receiveInterval`
// +kubebuilder:printcolumn:name="Multiplier",type=integer,JSONPath=`.spec.detectMultiplier`
type BFDProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec BFDProfileSpec `json:"spec,omitempty"`
	// +optional
	Status AdvertisementStatus `json:"status,omitempty"`
}

// BFDProfileList is a list of BFDProfiles.
//
// +kubebuilder:object:root=true
type BFDProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BFDProfile `json:"items"`
}
