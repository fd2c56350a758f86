package link

import (
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var (
	format = Format[byte]{
		Magic: [4]byte{'T', 'E', 'S', 'T'}, Entries: 3,
		Write: func(e byte, b []byte) []byte { return append(b, e) },
		Read: func(b []byte) (byte, int) {
			if len(b) == 0 {
				return 0, 0
			}
			return b[0], 1
		},
	}
	oldKey, newKey = []byte("the key of this cluster"), []byte("its next key")
	keys           = NewKeys(oldKey)
)

// TestFrames: what is written is read again, whatever Ethernet adds; and nothing is that was
// changed, cut off, or signed by somebody else.
func TestFrames(t *testing.T) {
	for _, h := range []Head{
		{Node: "n"}, {Node: strings.Repeat("n", MaxName), Flags: 255, Incarnation: 1 << 63, Sequence: 7, Counter: 1 << 31, MAC: [6]byte{1, 2, 3, 4, 5, 6}},
	} {
		for _, m := range []*Message[byte]{{Head: h}, {Head: h, Entries: []byte{1, 2, 3}}, {Head: h, Entries: []byte{1}, Extra: []byte("extra")}} {
			b, err := format.Marshal(m, keys)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := format.Unmarshal(append(slices.Clone(b), 0, 0), keys); err != nil || !reflect.DeepEqual(got, m) {
				t.Errorf("%+v is read as %+v: %v", m, got, err)
			}
			for i := range b {
				changed := slices.Clone(b)
				changed[i] ^= 1
				if _, err := format.Unmarshal(changed, keys); err == nil {
					t.Errorf("read with byte %d changed", i)
				}
				if _, err := format.Unmarshal(b[:i], keys); err == nil {
					t.Errorf("read with %d of %d bytes", i, len(b))
				}
			}
			if _, err := format.Unmarshal(b, NewKeys([]byte("another"))); !errors.Is(err, ErrSignature) {
				t.Errorf("with another key: %v", err)
			}
		}
	}
	for _, name := range []string{"", strings.Repeat("n", MaxName+1)} {
		if _, err := format.Marshal(&Message[byte]{Head: Head{Node: name}}, keys); err == nil {
			t.Errorf("a name of %d bytes is written", len(name))
		}
	}
	if _, err := format.Marshal(&Message[byte]{Head: Head{Node: "n"}, Entries: make([]byte, 4)}, keys); err == nil {
		t.Error("too many entries are written")
	}
}

// TestRotation: while keys are rotated, those who know the old one, both or the new one
// understand each other, but for those who have never had a key in common.
func TestRotation(t *testing.T) {
	states := []*Keys{NewKeys(oldKey), NewKeys(newKey, oldKey), NewKeys(newKey)}
	for i, from := range states {
		b, err := format.Marshal(&Message[byte]{Head: Head{Node: "n"}}, from)
		if err != nil {
			t.Fatal(err)
		}
		for j, to := range states {
			_, err := format.Unmarshal(b, to)
			if want := i-j < 2 && j-i < 2; want != (err == nil) {
				t.Errorf("from state %d to state %d: %v", i, j, err)
			}
		}
	}
}

// TestQuestions: an answer counts if it has the nonce of one of the last questions.
func TestQuestions(t *testing.T) {
	q := Questions{Magic: [4]byte{'A', 'S', 'K', 'S'}, EtherType: 0x88b5}
	to, from := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	answerTo := func(question []byte) []byte {
		a := slices.Clone(question)
		a[EtherHead+5], a[EtherHead+23] = kindAnswer, 7
		return a
	}
	if _, err := q.Answer(answerTo(q.Frame(to, from))); err == nil {
		t.Error("an answer counts before there was a question")
	}
	q.Begin()
	first := q.Frame(to, from)
	if _, err := q.Answer(first); !errors.Is(err, ErrNone) {
		t.Errorf("a question as an answer: %v", err)
	}
	for i := range len(q.nonces) + 1 {
		incarnation, err := q.Answer(answerTo(first))
		if late := i == len(q.nonces); late != (err != nil) || !late && incarnation != 7 {
			t.Errorf("%d questions later: %d, %v", i, incarnation, err)
		}
		q.Begin()
	}
}

func FuzzAnswer(f *testing.F) {
	q := Questions{Magic: [4]byte{'A', 'S', 'K', 'S'}}
	q.Begin()
	f.Add(q.Frame(make(net.HardwareAddr, 6), make(net.HardwareAddr, 6)))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if _, err := q.Answer(frame); err == nil || errors.Is(err, ErrSignature) && !q.Is(frame) {
			t.Errorf("an answer that no question belongs to: %x", frame)
		}
	})
}

func FuzzFrame(f *testing.F) {
	b, err := format.Marshal(&Message[byte]{Head: Head{Node: "n"}, Entries: []byte{1}, Extra: []byte{2}}, keys)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:len(b)-signatureLength])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := format.Unmarshal(keys.sign(slices.Clone(b)), keys)
		if err != nil || len(m.Entries) > format.Entries {
			return // such are never written
		}
		again, err := format.Marshal(m, keys)
		if err != nil || !slices.Equal(again[:len(again)-signatureLength], b) {
			t.Errorf("%x is written as %x (%v)", b, again, err)
		}
	})
}
