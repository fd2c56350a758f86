package nlmsg

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func datagram(bodies ...string) (data []byte) {
	for i, b := range bodies {
		data = binary.NativeEndian.AppendUint32(data, uint32(unix.SizeofNlMsghdr+len(b)))
		data = binary.NativeEndian.AppendUint16(data, uint16(100+i))
		data = binary.NativeEndian.AppendUint16(data, 2)
		data = binary.NativeEndian.AppendUint32(data, uint32(i))
		data = binary.NativeEndian.AppendUint32(data, 7)
		data = append(data, b...)
		for len(data)%4 > 0 {
			data = append(data, 0)
		}
	}
	return data
}

// TestEach: messages come in order, without what fills them up, until somebody stops.
func TestEach(t *testing.T) {
	data := datagram("one", "", "three")
	var got []string
	err := Each(data, func(h Header, body []byte) error {
		if want := (Header{Type: uint16(100 + len(got)), Flags: 2, Seq: uint32(len(got)), PortID: 7}); h != want {
			t.Errorf("header %+v, want %+v", h, want)
		}
		got = append(got, string(body))
		return nil
	})
	if want := []string{"one", "", "three"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	stop := errors.New("enough")
	visits := 0
	if err := Each(data, func(Header, []byte) error { visits++; return stop }); !errors.Is(err, stop) || visits != 1 {
		t.Errorf("%d visits, %v", visits, err)
	}
	for n := 1; n < len(data); n++ { // cut off anywhere: no message is longer than what is there
		_ = Each(data[:n], func(_ Header, body []byte) error {
			if len(body) > n {
				t.Errorf("%d bytes of %d", len(body), n)
			}
			return nil
		})
	}
	if err := Each(datagram("cut off")[:20], func(Header, []byte) error { return nil }); err == nil {
		t.Error("a message that is cut off is none")
	}
}

// TestErrno reads what the kernel answers.
func TestErrno(t *testing.T) {
	answer := func(n int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }
	if err := Errno(answer(0)); err != nil {
		t.Error(err)
	}
	if err := Errno(answer(-int32(unix.ENOENT))); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
	if err := Errno(nil); !errors.Is(err, unix.EBADMSG) {
		t.Error(err)
	}
}
