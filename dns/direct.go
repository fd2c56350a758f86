package dns

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/types"
)

// asked is what a question packet says, as far as direct answers go.
type asked struct {
	qtype uint16
	rcode int // of the answer
	edns  bool
	do    bool
}

const (
	headerSize = 12 // RFC 1035, section 4.1.1
	// directMax is what every client takes (RFC 1035, section 4.2.1); longer
	// answers are the handlers'.
	directMax = 512
	// maxName and maxLabel are RFC 1035's, section 2.3.4.
	maxName, maxLabel = 255, 63
)

// direct appends the answer to a question that needs no more than a look into
// the index: addresses of Services with a cluster IP, and names that aren't
// there. Those are nearly all questions, and this is a twentieth of what it
// costs to take a packet apart and hand it through the plugins. Of everything
// else it says nothing. It answers as lookup and the handlers do, except that it
// compresses names. The caller holds the index's lock for reading.
func (x *Index) direct(answer, packet []byte, client netip.Addr, ednsLimit uint16) ([]byte, asked, bool) {
	var q asked
	if !x.synced || len(packet) < headerSize || packet[2]&0xFA != 0 || // a response, not a query, or cut off
		binary.BigEndian.Uint64(packet[4:])>>16 != 1<<32 || packet[10] != 0 || packet[11] > 1 {
		return answer, q, false
	}
	var name question
	end, ok := name.read(packet)
	if !ok {
		return answer, q, false
	}
	q.qtype = binary.BigEndian.Uint16(packet[end:])
	if q.qtype != dns.TypeA && q.qtype != dns.TypeAAAA || binary.BigEndian.Uint16(packet[end+2:]) != dns.ClassINET {
		return answer, q, false
	}
	end += 4
	size, ok := q.readOption(packet[end:], packet[11] == 1)
	if !ok {
		return answer, q, false
	}
	svc, known := x.directly(&name, client)
	if !known {
		return answer, q, false
	}
	if svc == nil {
		q.rcode = dns.RcodeNameError
	}
	begin := len(answer)
	// RD and CD are the question's; it is an authoritative answer.
	answer = append(answer, packet[0], packet[1], 0x84|packet[2]&1, 0x80|packet[3]&0x10|byte(q.rcode), 0, 1, 0, 0, 0, 0, 0, packet[11])
	answer = append(answer, packet[headerSize:end]...)
	var records byte
	if svc != nil {
		for _, a := range svc.live.addresses {
			if addressType(a) == q.qtype {
				answer = x.appendAddress(answer, a)
				records++
			}
		}
	}
	if answer[begin+7] = records; records == 0 {
		answer[begin+9] = 1
		answer = x.appendSOA(answer, name.zone)
	}
	if q.edns {
		answer = append(answer, 0, 0, byte(dns.TypeOPT))
		answer = binary.BigEndian.AppendUint16(answer, min(size, ednsLimit))
		answer = append(answer, 0, 0, packet[len(packet)-4], 0, 0, 0)
	}
	return answer, q, len(answer)-begin <= directMax
}

// question is a name taken apart: in lower case, with the labels below the zone
// from the right.
type question struct {
	lower  [maxName + 1]byte
	length int
	labels [maxLabels + 1]uint8 // where they begin; one too many is enough to know that it is
	count  int
	zone   int // where the zone begins in the packet
}

func (q *question) label(i int) []byte {
	at := int(q.labels[i])
	return q.lower[at+1 : at+1+int(q.lower[at])]
}

// read reads the name of a packet's question and returns where it ends.
// Unusual ones are not read.
func (q *question) read(packet []byte) (end int, ok bool) {
	from, n := packet[headerSize:], 0
	for {
		if n >= len(from) || n > maxName {
			return 0, false
		}
		length := int(from[n])
		q.lower[n] = from[n]
		if length == 0 {
			break
		}
		if length > maxLabel || n+length >= maxName-1 || n+length >= len(from) {
			return 0, false
		}
		for i := n + 1; i <= n+length; i++ {
			c := from[i]
			switch {
			case c >= 'A' && c <= 'Z':
				c += 'a' - 'A'
			case c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_':
			default:
				return 0, false
			}
			q.lower[i] = c
		}
		n += length + 1
	}
	q.length = n + 1
	end = headerSize + q.length
	return end, n > 0 && len(packet) >= end+4
}

// below finds the labels below a zone, given as in a packet.
func (q *question) below(zone []byte) bool {
	at := q.length - len(zone)
	if at < 0 || !bytes.Equal(q.lower[at:q.length], zone) {
		return false
	}
	var starts [maxName/2 + 1]uint8
	n, i := 0, 0
	for ; i < at; i += int(q.lower[i]) + 1 {
		starts[n] = uint8(i)
		n++
	}
	if i != at { // what looks like the zone begins inside a label
		return false
	}
	for q.count = 0; q.count < min(n, len(q.labels)); q.count++ {
		q.labels[q.count] = starts[n-1-q.count]
	}
	q.zone = headerSize + at
	return true
}

// readOption reads the EDNS0 record at the end of a packet, if there is one
// (RFC 6891). Others are not read, and neither are options in it.
func (q *asked) readOption(rest []byte, there bool) (size uint16, ok bool) {
	if !there {
		return 0, len(rest) == 0
	}
	if len(rest) != 11 || rest[0] != 0 || binary.BigEndian.Uint16(rest[1:]) != dns.TypeOPT ||
		rest[5] != 0 || rest[6] != 0 || rest[7]&0x7F != 0 || rest[8] != 0 || rest[9] != 0 || rest[10] != 0 {
		return 0, false
	}
	q.edns, q.do = true, rest[7] != 0
	return binary.BigEndian.Uint16(rest[3:]), true
}

// directly finds the Service with a cluster IP that a name is the name of; none
// if there is nothing of that name, and nothing known if that takes a longer
// look.
func (x *Index) directly(name *question, client netip.Addr) (svc *service, known bool) {
	if !name.below(x.wire) || name.count == 0 {
		return nil, false
	}
	switch string(name.label(0)) {
	case "svc":
		if name.count < 3 {
			return nil, false
		}
		svc = x.services[types.NamespacedName{Namespace: string(name.label(1)), Name: string(name.label(2))}]
		if svc != nil && svc.live != nil && name.count <= maxLabels {
			return svc, name.count == 3 && svc.live.kind == clusterIP
		}
	case "pod", "dns", "dns-version":
		return nil, false
	}
	// Not there; but autopath may have more to say to a pod.
	_, pod := x.clients[client]
	return nil, !pod
}

// owner points to the question's name (RFC 1035, section 4.1.4).
const owner = 0xC000 | headerSize

func (x *Index) appendAddress(b []byte, a netip.Addr) []byte {
	b = binary.BigEndian.AppendUint16(b, owner)
	b = append(b, 0, byte(addressType(a)), 0, byte(dns.ClassINET))
	b = binary.BigEndian.AppendUint32(b, x.ttl)
	if a.Is4() {
		raw := a.As4()
		return append(append(b, 0, 4), raw[:]...)
	}
	raw := a.As16()
	return append(append(b, 0, 16), raw[:]...)
}

// appendSOA appends what soa returns.
func (x *Index) appendSOA(b []byte, zone int) []byte {
	b = binary.BigEndian.AppendUint16(b, 0xC000|uint16(zone))
	b = append(b, 0, byte(dns.TypeSOA), 0, byte(dns.ClassINET), 0, 0, 0, 0)
	const fixed = 5 * 4
	mname, rname := "\x02ns\x03dns", "\x0Ahostmaster"
	b = append(b, 0, byte(len(mname)+2+len(rname)+2+fixed))
	b = binary.BigEndian.AppendUint16(append(b, mname...), 0xC000|uint16(zone))
	b = binary.BigEndian.AppendUint16(append(b, rname...), 0xC000|uint16(zone))
	for _, n := range [...]uint32{x.changes, soaRefresh, soaRetry, soaExpire, 0} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}
