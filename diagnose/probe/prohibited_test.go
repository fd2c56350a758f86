package probe

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestProhibits reads what the kernel keeps of ICMP errors: a firewall's refusal is told from a
// missing route.
func TestProhibits(t *testing.T) {
	message := func(origin, kind, code byte) []byte {
		data := make([]byte, extendedSize+unix.SizeofSockaddrInet6)
		data[extendedOrigin], data[extendedType], data[extendedCode] = origin, kind, code
		from := data[extendedSize:]
		if origin == unix.SO_EE_ORIGIN_ICMP6 {
			binary.NativeEndian.PutUint16(from, unix.AF_INET6)
			copy(from[8:], netip.MustParseAddr("2001:db8::1").AsSlice())
		} else {
			binary.NativeEndian.PutUint16(from, unix.AF_INET)
			copy(from[4:], netip.MustParseAddr("192.0.2.1").AsSlice())
		}
		return data
	}
	for name, c := range map[string]struct {
		data []byte
		by   string // "" if nobody prohibits
	}{
		"administratively prohibited": {message(unix.SO_EE_ORIGIN_ICMP, 3, 13), "192.0.2.1"},
		"host prohibited":             {message(unix.SO_EE_ORIGIN_ICMP, 3, 10), "192.0.2.1"},
		"no route":                    {message(unix.SO_EE_ORIGIN_ICMP, 3, 1), ""},
		"refused":                     {message(unix.SO_EE_ORIGIN_ICMP, 3, 3), ""},
		"prohibited over IPv6":        {message(unix.SO_EE_ORIGIN_ICMP6, 1, 1), "2001:db8::1"},
		"no route over IPv6":          {message(unix.SO_EE_ORIGIN_ICMP6, 1, 0), ""},
		"of the machine itself":       {message(unix.SO_EE_ORIGIN_LOCAL, 3, 13), ""},
		"too short":                   {message(unix.SO_EE_ORIGIN_ICMP, 3, 13)[:20], ""},
	} {
		by, says := prohibits(c.data)
		if says != (c.by != "") || says && by.String() != c.by {
			t.Errorf("%s: %s, %v", name, by, says)
		}
	}
}
