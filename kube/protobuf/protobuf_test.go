package protobuf

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// decoders are what a watch of the API uses, client-go's or this package's.
func decoders(t testing.TB, n runtime.NegotiatedSerializer) (events runtime.Decoder, objects runtime.Decoder) {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(n.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("no protobuf")
	}
	return info.StreamSerializer.Serializer, n.DecoderToVersion(info.Serializer, nil)
}

func theirs() runtime.NegotiatedSerializer { return scheme.Codecs.WithoutConversion() }

// frame is an object as a watch sends it.
func frame(t testing.TB, object runtime.Object) []byte {
	t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(theirs().SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	var raw, event bytes.Buffer
	if err := info.Serializer.Encode(object, &raw); err != nil {
		t.Fatal(err)
	}
	e := &metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: raw.Bytes()}}
	if err := info.StreamSerializer.Encode(e, &event); err != nil {
		t.Fatal(err)
	}
	return event.Bytes()
}

// decode is what rest/watch.Decoder does with a frame.
func decode(t testing.TB, n runtime.NegotiatedSerializer, frame []byte) (string, runtime.Object, error) {
	t.Helper()
	events, objects := decoders(t, n)
	var got metav1.WatchEvent
	if res, _, err := events.Decode(frame, nil, &got); err != nil || res != &got {
		return "", nil, err
	}
	object, err := runtime.Decode(objects, got.Object.Raw)
	return got.Type, object, err
}

func objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: "shop", ResourceVersion: "17", Labels: map[string]string{"app": name}, CreationTimestamp: metav1.NewTime(time.Unix(1700000000, 0)),
		OwnerReferences: []metav1.OwnerReference{{Kind: "Service", Name: "web", UID: "u"}}, Finalizers: []string{"a/b"},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Operation: "Apply", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:ports":{}}}`)},
			{Manager: "controller", Operation: "Update", APIVersion: "v1", Subresource: "status"},
		},
	}
}

func objectsOfAPI() map[string]runtime.Object {
	web := objectMeta("web")
	port, ready, name := int32(8080), true, "http"
	return map[string]runtime.Object{
		"service": &corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: web,
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7", "fd00::7"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
		},
		"slice": &discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, ObjectMeta: web, AddressType: "IPv4",
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.2.3"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
			Ports:     []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		},
		"bookmark": &corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{ResourceVersion: "99", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
		},
		"error": &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: "Expired", Code: 410, Message: "too old"},
	}
}

// TestAsClientGo: but for managed fields, what is decoded is what client-go decodes.
func TestAsClientGo(t *testing.T) {
	for name, object := range objectsOfAPI() {
		t.Run(name, func(t *testing.T) {
			encoded := frame(t, object)
			wantKind, want, err := decode(t, theirs(), bytes.Clone(encoded))
			if err != nil {
				t.Fatal(err)
			}
			if m, err := meta.Accessor(want); err == nil {
				m.SetManagedFields(nil)
			}
			kind, got, err := decode(t, Lean(theirs(), scheme.Scheme), encoded)
			if err != nil || kind != wantKind || !reflect.DeepEqual(got, want) {
				t.Errorf("got %s %#v (%v), want %s %#v", kind, got, err, wantKind, want)
			}
		})
	}
}

// TestNothingIsShared: what was decoded stays when the next frame comes into the same memory.
func TestNothingIsShared(t *testing.T) {
	for name, object := range objectsOfAPI() {
		encoded := frame(t, object)
		_, got, err := decode(t, Lean(theirs(), scheme.Scheme), encoded)
		if err != nil {
			t.Fatal(err)
		}
		before := got.DeepCopyObject()
		clear(encoded)
		if !reflect.DeepEqual(got, before) {
			t.Errorf("%s: it is now %#v, and was %#v", name, got, before)
		}
	}
}

// TestManagedFieldsOfGets: only watches leave them out.
func TestManagedFieldsOfGets(t *testing.T) {
	info, _ := runtime.SerializerInfoForMediaType(theirs().SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	var body bytes.Buffer
	if err := info.Serializer.Encode(objectsOfAPI()["service"], &body); err != nil {
		t.Fatal(err)
	}
	_, objects := decoders(t, Lean(theirs(), scheme.Scheme))
	for _, into := range []runtime.Object{nil, &corev1.Service{}} {
		got, _, err := objects.Decode(body.Bytes(), nil, into)
		if err != nil || len(got.(*corev1.Service).ManagedFields) != 2 {
			t.Errorf("into %T: got %#v, %v", into, got, err)
		}
	}
}

// TestUnknownKind: the error is client-go's.
func TestUnknownKind(t *testing.T) {
	unknown := append(bytes.Clone(magic), 0x0a, 0x0a, 0x0a, 0x02, 'v', '9', 0x12, 0x04, 'N', 'o', 'n', 'e')
	_, objects := decoders(t, theirs())
	_, wantErr := runtime.Decode(objects, unknown)
	_, objects = decoders(t, Lean(theirs(), scheme.Scheme))
	if _, err := runtime.Decode(objects, unknown); wantErr == nil || err == nil || err.Error() != wantErr.Error() {
		t.Errorf("got %v, want %v", err, wantErr)
	}
	if _, err := runtime.Decode(objects, append(bytes.Clone(magic), 0x0a, 0xff)); err == nil {
		t.Error("an envelope that is cut off was taken")
	}
}

// TestFewerBytes: decoding a Service allocates at most two thirds of what client-go does.
func TestFewerBytes(t *testing.T) {
	encoded := frame(t, objectsOfAPI()["service"])
	bytesOf := func(n runtime.NegotiatedSerializer) int64 {
		return testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := decode(b, n, bytes.Clone(encoded)); err != nil {
					b.Fatal(err)
				}
			}
		}).AllocedBytesPerOp()
	}
	if got, want := bytesOf(Lean(theirs(), scheme.Scheme)), bytesOf(theirs()); got*3 > want*2 {
		t.Errorf("%d bytes, client-go %d", got, want)
	}
}

// FuzzDecode: what client-go decodes is decoded alike, and nothing panics.
func FuzzDecode(f *testing.F) {
	for _, object := range objectsOfAPI() {
		f.Add(frame(f, object))
	}
	lean := Lean(theirs(), scheme.Scheme)
	f.Fuzz(func(t *testing.T, data []byte) {
		_, want, wantErr := decode(t, theirs(), bytes.Clone(data))
		_, got, err := decode(t, lean, data)
		if wantErr != nil || err != nil {
			return
		}
		if m, err := meta.Accessor(want); err == nil {
			m.SetManagedFields(nil)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %#v, want %#v", got, want)
		}
	})
}
