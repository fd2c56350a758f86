// Package v1beta1 has the kinds of MetalLB's API, group metallb.io, that
// Fairway reads and writes. Names, fields and defaults are MetalLB's (0.16), so
// that its manifests apply unchanged. BGPPeer is stored as v1beta2; its v1beta1
// differs in a few fields only and is served from the same object.
//
// +kubebuilder:object:generate=true
// +groupName=metallb.io
package v1beta1

//go:generate go tool -modfile=../../../tools/crds/go.mod controller-gen object crd:maxDescLen=300 paths=../... output:crd:dir=../crds
