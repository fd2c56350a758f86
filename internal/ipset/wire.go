package ipset

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
	"github.com/fairway-net/fairway/model"
)

func encode(kind Kind, e Marked) *nl.RtAttr {
	data := nl.NewRtAttr(nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED, nil)
	if e.Addr.IsValid() {
		addAddr(data, nl.IPSET_ATTR_IP, e.Addr)
	}
	if e.Port != 0 {
		data.AddRtAttr(nl.IPSET_ATTR_PORT|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint16(nil, e.Port))
	}
	if e.Proto != 0 {
		data.AddRtAttr(nl.IPSET_ATTR_PROTO, []byte{byte(e.Proto)})
	}
	switch kind.Type {
	case HashNet:
		addAddr(data, nl.IPSET_ATTR_IP, e.Net.Addr())
		data.AddRtAttr(nl.IPSET_ATTR_CIDR, []byte{byte(e.Net.Bits())})
	case HashIPPortNet:
		addAddr(data, attrIP2, e.Net.Addr())
		data.AddRtAttr(attrCIDR2, []byte{byte(e.Net.Bits())})
	case HashIPPortIP:
		addAddr(data, attrIP2, e.Net.Addr())
	}
	if e.Mark != (Mark{}) {
		data.AddRtAttr(attrSkbMark|unix.NLA_F_NET_BYTEORDER, append(big32(e.Mark.Value), big32(e.Mark.Mask)...))
	}
	if kind.Marks { // begins to count: the kernel would go on with what was at this place
		for _, counter := range []int{attrBytes, attrPackets} {
			data.AddRtAttr(counter|unix.NLA_F_NET_BYTEORDER, make([]byte, 8))
		}
	}
	return data
}

func addAddr(data *nl.RtAttr, typ int, a netip.Addr) {
	kind := nl.IPSET_ATTR_IPADDR_IPV4
	if a.Is6() {
		kind = nl.IPSET_ATTR_IPADDR_IPV6
	}
	data.AddRtAttr(typ|unix.NLA_F_NESTED, nil).AddRtAttr(kind|unix.NLA_F_NET_BYTEORDER, a.AsSlice())
}

func big32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

func (l *Listing) parse(msg []byte) {
	if len(msg) < 4 { // struct nfgenmsg
		return
	}
	for typ, value := range nlmsg.Attributes(msg[4:]).All() {
		switch typ {
		case nl.IPSET_ATTR_TYPENAME:
			l.typ = value.Text()
		case nl.IPSET_ATTR_FAMILY:
			l.ipv6 = len(value) > 0 && value[0] == unix.AF_INET6
		case nl.IPSET_ATTR_DATA:
			l.parseHeader(value)
		case nl.IPSET_ATTR_ADT:
			for _, data := range value.All() {
				l.Elements = append(l.Elements, parseElement(l.typ, data))
			}
		}
	}
}

func (l *Listing) parseHeader(data nlmsg.Attributes) {
	for typ, value := range data.All() {
		switch {
		case len(value) < 4:
		case typ == attrMaxElem:
			l.maxElem = binary.BigEndian.Uint32(value)
		case typ == nl.IPSET_ATTR_CADT_FLAGS:
			l.marks = binary.BigEndian.Uint32(value)&flagsOfMarks == flagsOfMarks
		}
	}
}

func parseElement(typ string, data nlmsg.Attributes) Marked {
	var e Marked
	var second netip.Addr
	bits := -1
	for typ, value := range data.All() {
		switch {
		case typ == nl.IPSET_ATTR_IP:
			e.Addr = parseAddr(value)
		case typ == attrIP2:
			second = parseAddr(value)
		case len(value) >= 1 && (typ == nl.IPSET_ATTR_CIDR || typ == attrCIDR2):
			bits = int(value[0])
		case len(value) >= 1 && typ == nl.IPSET_ATTR_PROTO:
			e.Proto = model.Protocol(value[0])
		case len(value) >= 2 && typ == nl.IPSET_ATTR_PORT:
			e.Port = binary.BigEndian.Uint16(value)
		case len(value) >= 8 && typ == attrPackets:
			e.Packets = binary.BigEndian.Uint64(value)
		case len(value) >= 8 && typ == attrSkbMark:
			e.Mark = Mark{binary.BigEndian.Uint32(value), binary.BigEndian.Uint32(value[4:])}
		}
	}
	if typ == HashNet {
		e.Addr, second = netip.Addr{}, e.Addr
	}
	if second.IsValid() {
		if bits < 0 {
			bits = second.BitLen()
		}
		e.Net = netip.PrefixFrom(second, bits)
	}
	return e
}

func parseAddr(nested nlmsg.Attributes) netip.Addr {
	for _, value := range nested.All() {
		if a, ok := netip.AddrFromSlice(value); ok {
			return a
		}
	}
	return netip.Addr{}
}
