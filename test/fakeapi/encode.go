package fakeapi

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// encoding is how objects travel: as JSON, or as protobuf in the envelope of
// Kubernetes.
type encoding struct{ protobuf bool }

// envelope begins every object that travels as protobuf.
var envelope = []byte("k8s\x00")

// unknownField is a field number that no Kubernetes message uses yet.
const unknownField = 500

// encoding is what the client prefers and the server speaks; the caller holds
// the lock.
func (s *Server) encoding(r *http.Request) encoding {
	return encoding{!s.behaviour.JSON && strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf)}
}

// note remembers an encoding; the caller holds the lock.
func (s *Server) note(e encoding, verb string) {
	if text := verb + " " + e.mediaType(); !slices.Contains(s.seen.Encodings, text) {
		s.seen.Encodings = append(s.seen.Encodings, text)
	}
}

func (e encoding) mediaType() string {
	if e.protobuf {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

func (e encoding) object(o *unstructured.Unstructured) ([]byte, error) {
	if !e.protobuf {
		return json.Marshal(o.Object)
	}
	raw, err := message(o)
	if err != nil {
		return nil, err
	}
	return wrap(o.GroupVersionKind(), raw)
}

// list is a page. The items of a list don't say what they are.
func (e encoding) list(item schema.GroupVersionKind, meta metav1.ListMeta, items []*unstructured.Unstructured) ([]byte, error) {
	gvk := item.GroupVersion().WithKind(item.Kind + "List")
	if !e.protobuf {
		plain := make([]any, len(items))
		for i, o := range items {
			o = o.DeepCopy()
			delete(o.Object, "kind")
			delete(o.Object, "apiVersion")
			plain[i] = o.Object
		}
		return json.Marshal(map[string]any{
			"kind": gvk.Kind, "apiVersion": gvk.GroupVersion().String(), "metadata": meta, "items": plain, "fieldToCome": true,
		})
	}
	raw, err := meta.Marshal()
	if err != nil {
		return nil, err
	}
	body := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), raw)
	for _, o := range items {
		if raw, err = message(o); err != nil {
			return nil, err
		}
		body = protowire.AppendBytes(protowire.AppendTag(body, 2, protowire.BytesType), raw)
	}
	return wrap(gvk, body)
}

// event is one event of a watch.
func (e encoding) event(kind string, object []byte) ([]byte, error) {
	event := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object}}
	if !e.protobuf {
		text, err := json.Marshal(event)
		return append(text, '\n'), err
	}
	raw, err := event.Marshal()
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...), nil
}

func (e encoding) status(st *metav1.Status) ([]byte, error) {
	if !e.protobuf {
		return json.Marshal(st)
	}
	raw, err := st.Marshal()
	if err != nil {
		return nil, err
	}
	return wrap(schema.GroupVersionKind{Version: "v1", Kind: "Status"}, raw)
}

// message is the protobuf of an object with a field of a version to come.
func message(o *unstructured.Unstructured) ([]byte, error) {
	typed, err := scheme.Scheme.New(o.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", o.GetKind(), nameOf(o), err)
	}
	m, ok := typed.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return nil, errors.New(o.GetKind() + " has no protobuf form")
	}
	raw, err := m.Marshal()
	if err != nil {
		return nil, err
	}
	return protowire.AppendString(protowire.AppendTag(raw, unknownField, protowire.BytesType), "to come"), nil
}

func wrap(gvk schema.GroupVersionKind, raw []byte) ([]byte, error) {
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind}, Raw: raw}
	body, err := unknown.Marshal()
	return append(slices.Clone(envelope), body...), err
}

// decode reads what a client sends, in either encoding.
func decode(body []byte) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	if !bytes.HasPrefix(body, envelope) {
		return o, json.Unmarshal(body, &o.Object)
	}
	typed, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	o.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	return o, err
}
