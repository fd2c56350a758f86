package protobuf

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers: k8s.io/apimachinery/pkg/runtime/generated.proto (TypeMeta, Unknown,
// RawExtension) and pkg/apis/meta/v1/generated.proto (WatchEvent, ObjectMeta).
const (
	eventType, eventObject        = 1, 2
	extensionRaw                  = 1
	unknownTypeMeta, unknownRaw   = 1, 2
	typeMetaVersion, typeMetaKind = 1, 2
	objectMetadata                = 1 // of every object of the API
	metaManagedFields             = 17
	metaNoField                   = 31 // nor will ObjectMeta have it
	lengthTag                     = protowire.BytesType
)

// Both have two bytes.
var (
	managedFieldsTag = protowire.AppendTag(nil, metaManagedFields, lengthTag)
	noFieldTag       = protowire.AppendTag(nil, metaNoField, lengthTag)
)

// envelope is what is around each object.
type envelope struct {
	apiVersion, kind string
	raw              []byte
}

// walk calls do with each field of a message that has a length: its number, where its tag
// begins and what it holds. Fields of other types are passed over.
func walk(message []byte, do func(number protowire.Number, tag int, value []byte)) error {
	for at := 0; at < len(message); {
		number, kind, n := protowire.ConsumeTag(message[at:])
		if n < 0 {
			return protowire.ParseError(n)
		}
		if kind != lengthTag {
			skip := protowire.ConsumeFieldValue(number, kind, message[at+n:])
			if skip < 0 {
				return protowire.ParseError(skip)
			}
			at += n + skip
			continue
		}
		value, length := protowire.ConsumeBytes(message[at+n:])
		if length < 0 {
			return protowire.ParseError(length)
		}
		do(number, at, value)
		at += n + length
	}
	return nil
}

// field is the last field of a message that has this number, as protobuf has it.
func field(message []byte, wanted protowire.Number) (value []byte, err error) {
	err = walk(message, func(number protowire.Number, _ int, v []byte) {
		if number == wanted {
			value = v
		}
	})
	return value, err
}

// readEvent reads a metav1.WatchEvent. The object that it returns is part of frame.
func readEvent(frame []byte) (kind string, object []byte, err error) {
	var extension []byte
	err = walk(frame, func(number protowire.Number, _ int, v []byte) {
		switch number {
		case eventType:
			kind = string(v)
		case eventObject:
			extension = v
		}
	})
	if err != nil {
		return "", nil, err
	}
	object, err = field(extension, extensionRaw)
	return kind, object, err
}

// readEnvelope reads a runtime.Unknown. What it returns as raw is part of message.
func readEnvelope(message []byte) (e envelope, err error) {
	var typeMeta []byte
	err = walk(message, func(number protowire.Number, _ int, v []byte) {
		switch number {
		case unknownTypeMeta:
			typeMeta = v
		case unknownRaw:
			e.raw = v
		}
	})
	if err != nil {
		return envelope{}, err
	}
	err = walk(typeMeta, func(number protowire.Number, _ int, v []byte) {
		switch number {
		case typeMetaVersion:
			e.apiVersion = string(v)
		case typeMetaKind:
			e.kind = string(v)
		}
	})
	return e, err
}

// hideManagedFields gives the managed fields of an encoded object another number, which no
// decoder knows. What isn't as expected stays, and is for the decoder to say.
func hideManagedFields(object []byte) {
	if len(object) < len(magic) {
		return
	}
	raw, err := field(object[len(magic):], unknownRaw)
	if err != nil {
		return
	}
	metadata, err := field(raw, objectMetadata)
	if err != nil {
		return
	}
	_ = walk(metadata, func(_ protowire.Number, tag int, _ []byte) {
		if bytes.HasPrefix(metadata[tag:], managedFieldsTag) {
			copy(metadata[tag:], noFieldTag)
		}
	})
}
