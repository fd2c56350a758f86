package wire

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
)

var (
	format = Format{Magic: [4]byte{'T', 'E', 'S', 'T'}, Version: 1, Entries: 3}
	key    = []byte("the key of this cluster")
)

func write(e byte, b []byte) []byte { return append(b, e) }

func read(b []byte) (byte, int) {
	if len(b) == 0 {
		return 0, 0
	}
	return b[0], 1
}

// TestMessages: what is written is read again, whatever Ethernet adds; and nothing is that was
// changed, cut off, or signed by somebody else.
func TestMessages(t *testing.T) {
	for _, h := range []Head{
		{Node: "n"}, {Node: strings.Repeat("n", MaxName), Flags: 255, Incarnation: 1 << 63, Sequence: 7, Counter: 1 << 31},
	} {
		for _, entries := range [][]byte{nil, {1, 2, 3}} {
			b, err := Write(&format, h, entries, write, key)
			if err != nil {
				t.Fatal(err)
			}
			got, gotEntries, n, err := Read(&format, append(slices.Clone(b), 0, 0), key, read)
			if err != nil || got != h || !slices.Equal(gotEntries, entries) || n != len(b) {
				t.Errorf("%+v %v is read as %+v %v, %d of %d bytes: %v", h, entries, got, gotEntries, n, len(b), err)
			}
			for i := range b {
				changed := slices.Clone(b)
				changed[i] ^= 1
				if _, _, _, err := Read(&format, changed, key, read); err == nil {
					t.Errorf("read with byte %d changed", i)
				}
				if _, _, _, err := Read(&format, b[:i], key, read); err == nil {
					t.Errorf("read with %d of %d bytes", i, len(b))
				}
			}
			if _, _, _, err := Read(&format, b, []byte("another"), read); !errors.Is(err, ErrSignature) {
				t.Errorf("with another key: %v", err)
			}
		}
	}
	for _, name := range []string{"", strings.Repeat("n", MaxName+1)} {
		if _, err := Write(&format, Head{Node: name}, nil, write, key); err == nil {
			t.Errorf("a name of %d bytes is written", len(name))
		}
	}
	if _, err := Write(&format, Head{Node: "n"}, make([]byte, 4), write, key); err == nil {
		t.Error("too many entries are written")
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

func FuzzRead(f *testing.F) {
	b, err := Write(&format, Head{Node: "n"}, []byte{1}, write, key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:len(b)-SignatureLength])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, entries, n, err := Read(&format, Sign(slices.Clone(b), key), key, read)
		if err != nil {
			return
		}
		if len(entries) > format.Entries {
			return // which is never written
		}
		again, err := Write(&format, h, entries, write, key)
		if err != nil || !slices.Equal(again[:n-SignatureLength], b[:n-SignatureLength]) {
			t.Errorf("%x is written as %x (%v)", b, again, err)
		}
	})
}
