package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kinds of this package.
var GroupVersion = schema.GroupVersion{Group: "metallb.io", Version: "v1beta2"}

// AddToScheme makes a scheme know the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &BGPPeer{}, &BGPPeerList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
