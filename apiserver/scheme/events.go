package scheme

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// addEvents makes core Events the internal version of events.k8s.io too: both
// groups are two forms of the same stored objects, as in Kubernetes.
func addEvents(s *runtime.Scheme) error {
	internal := schema.GroupVersion{Group: eventsv1.GroupName, Version: runtime.APIVersionInternal}
	s.AddKnownTypeWithName(internal.WithKind("Event"), &corev1.Event{})
	s.AddKnownTypeWithName(internal.WithKind("EventList"), &corev1.EventList{})
	for _, add := range []error{
		s.AddConversionFunc((*corev1.Event)(nil), (*eventsv1.Event)(nil), func(in, out any, _ conversion.Scope) error {
			toEvents(in.(*corev1.Event), out.(*eventsv1.Event))
			return nil
		}),
		s.AddConversionFunc((*eventsv1.Event)(nil), (*corev1.Event)(nil), func(in, out any, _ conversion.Scope) error {
			toCore(in.(*eventsv1.Event), out.(*corev1.Event))
			return nil
		}),
		s.AddConversionFunc((*corev1.EventList)(nil), (*eventsv1.EventList)(nil), func(in, out any, _ conversion.Scope) error {
			from, to := in.(*corev1.EventList), out.(*eventsv1.EventList)
			to.ListMeta, to.Items = from.ListMeta, make([]eventsv1.Event, len(from.Items))
			for i := range from.Items {
				toEvents(&from.Items[i], &to.Items[i])
			}
			return nil
		}),
		s.AddConversionFunc((*eventsv1.EventList)(nil), (*corev1.EventList)(nil), func(in, out any, _ conversion.Scope) error {
			from, to := in.(*eventsv1.EventList), out.(*corev1.EventList)
			to.ListMeta, to.Items = from.ListMeta, make([]corev1.Event, len(from.Items))
			for i := range from.Items {
				toCore(&from.Items[i], &to.Items[i])
			}
			return nil
		}),
	} {
		if add != nil {
			return fmt.Errorf("register conversion of events: %w", add)
		}
	}
	return addEventLabels(s)
}

func toEvents(in *corev1.Event, out *eventsv1.Event) {
	out.ObjectMeta, out.EventTime, out.Action, out.Reason, out.Type = in.ObjectMeta, in.EventTime, in.Action, in.Reason, in.Type
	out.ReportingController, out.ReportingInstance = in.ReportingController, in.ReportingInstance
	out.Regarding, out.Related, out.Note, out.DeprecatedSource = in.InvolvedObject, in.Related, in.Message, in.Source
	out.DeprecatedFirstTimestamp, out.DeprecatedLastTimestamp, out.DeprecatedCount = in.FirstTimestamp, in.LastTimestamp, in.Count
	out.Series = nil
	if in.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: in.Series.Count, LastObservedTime: in.Series.LastObservedTime}
	}
}

func toCore(in *eventsv1.Event, out *corev1.Event) {
	out.ObjectMeta, out.EventTime, out.Action, out.Reason, out.Type = in.ObjectMeta, in.EventTime, in.Action, in.Reason, in.Type
	out.ReportingController, out.ReportingInstance = in.ReportingController, in.ReportingInstance
	out.InvolvedObject, out.Related, out.Message, out.Source = in.Regarding, in.Related, in.Note, in.DeprecatedSource
	out.FirstTimestamp, out.LastTimestamp, out.Count = in.DeprecatedFirstTimestamp, in.DeprecatedLastTimestamp, in.DeprecatedCount
	out.Series = nil
	if in.Series != nil {
		out.Series = &corev1.EventSeries{Count: in.Series.Count, LastObservedTime: in.Series.LastObservedTime}
	}
}

// eventLabels are the field selectors of events.k8s.io by their names in core.
var eventLabels = map[string]string{
	"metadata.name": "metadata.name", "metadata.namespace": "metadata.namespace", "reason": "reason", "type": "type",
	"reportingController": "reportingComponent", "deprecatedSource": "source",
	"regarding.kind": "involvedObject.kind", "regarding.namespace": "involvedObject.namespace", "regarding.name": "involvedObject.name",
	"regarding.uid": "involvedObject.uid", "regarding.apiVersion": "involvedObject.apiVersion",
	"regarding.resourceVersion": "involvedObject.resourceVersion", "regarding.fieldPath": "involvedObject.fieldPath",
}

func addEventLabels(s *runtime.Scheme) error {
	err := s.AddFieldLabelConversionFunc(eventsv1.SchemeGroupVersion.WithKind("Event"), func(label, value string) (string, string, error) {
		core, ok := eventLabels[label]
		if !ok {
			return "", "", fmt.Errorf("field label not supported: %s", label)
		}
		return core, value, nil
	})
	if err != nil {
		return fmt.Errorf("register field selectors of events: %w", err)
	}
	return nil
}
