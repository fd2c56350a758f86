package registry

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// eventsREST serves the Events of core in the form of events.k8s.io.
type eventsREST struct{ *REST }

// GroupVersionKind implements rest.GroupVersionKindProvider.
func (r eventsREST) GroupVersionKind(containing schema.GroupVersion) schema.GroupVersionKind {
	if containing.Group == eventsv1.GroupName {
		return eventsv1.SchemeGroupVersion.WithKind("Event")
	}
	return corev1.SchemeGroupVersion.WithKind("Event")
}

// Destroy leaves the store to its owner.
func (r eventsREST) Destroy() {}
