// Package v1beta2 has the second version of BGPPeer of MetalLB's API, the one
// that is stored; see package v1beta1 for the other kinds.
//
// +kubebuilder:object:generate=true
// +groupName=metallb.io
package v1beta2
