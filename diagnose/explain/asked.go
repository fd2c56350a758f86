package explain

import (
	"net/netip"

	"github.com/fairway-net/fairway/model"
)

// Asked is one packet to decide on.
type Asked struct {
	Key    model.Key
	Origin model.Origin
	Source netip.Addr // invalid if any address will do
	In     string     // the interface; "" for packets of the node itself
}

// packet is a packet of the asked origin. Where no source is given, one is made
// up that the frontend lets in.
func (q Asked) packet(t *model.Table) model.Packet {
	p := model.Packet{Src: q.Source, Dst: q.Key.Addr, DstPort: q.Key.Port, Proto: q.Key.Proto, In: q.In}
	if q.Origin == model.FromPod && p.In == podInterface && len(t.Settings.Pods.Interfaces) > 0 {
		p.In = t.Settings.Pods.Interfaces[0] // a pattern matches itself
	}
	if p.Src.IsValid() {
		return p
	}
	p.Src = anyAddr(q.Key.Addr)
	if front := t.Frontend(q.Key); front != nil && len(front.Sources) > 0 {
		p.Src = front.Sources[0].Addr()
	}
	switch q.Origin {
	case model.FromNode:
		p.In = ""
	case model.FromPod:
		p.In = podInterface
		for _, prefix := range t.Settings.Pods.Prefixes {
			if prefix.Addr().Is6() == q.Key.Addr.Is6() {
				p.Src = prefix.Addr().Next()
				break
			}
		}
		if len(t.Settings.Pods.Interfaces) > 0 {
			p.In = t.Settings.Pods.Interfaces[0]
		}
	default:
		p.In = outsideInterface
	}
	return p
}

// Interfaces of packets that are made up.
const (
	podInterface     = "pod"
	outsideInterface = "outside"
)

// anyAddr is an address of the family that belongs to nobody (RFC 5737, RFC 3849).
func anyAddr(family netip.Addr) netip.Addr {
	if family.Is6() {
		return netip.MustParseAddr("2001:db8::1")
	}
	return netip.MustParseAddr("198.51.100.1")
}

// Questions are the packets that a question about a target means: to each of the
// frontends it names, from the source, or one of each origin.
func Questions(t *model.Table, keys []model.Key, from Source, node string) []Asked {
	var list []Asked
	for _, key := range keys {
		switch {
		case from.Kind == "node" && from.Name == node:
			list = append(list, Asked{Key: key, Origin: model.FromNode, Source: from.family(key)})
		case from.Kind == "pod" && (from.Node == node || node == "" || from.Node == ""):
			list = append(list, Asked{Key: key, Origin: model.FromPod, Source: from.family(key), In: podInterface})
		case from.Kind == "pod": // which reaches this node from another
			list = append(list, Asked{Key: key, Origin: model.FromPod, Source: from.family(key), In: outsideInterface})
		case from.Kind != "":
			list = append(list, Asked{Key: key, Origin: model.FromOutside, Source: from.family(key), In: outsideInterface})
		default:
			for _, o := range []model.Origin{model.FromPod, model.FromNode, model.FromOutside} {
				list = append(list, Asked{Key: key, Origin: o})
			}
		}
	}
	return list
}

// family is the source's address of the key's family, if it is known.
func (s Source) family(key model.Key) netip.Addr {
	for _, a := range []netip.Addr{s.Addr, s.Second} {
		if a.IsValid() && a.Is6() == key.Addr.Is6() {
			return a
		}
	}
	return netip.Addr{}
}
