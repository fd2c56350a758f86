package l2

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/mdlayher/packet"

	"github.com/fairway-net/fairway/announce/core"
	"github.com/fairway-net/fairway/announce/link"
)

// carryOut does what the announcer has decided, with the lock held.
func (l *Link) carryOut(effects []core.Effect) {
	for _, effect := range effects {
		switch e := effect.(type) {
		case core.Send:
			l.send(e.Advert)
		case core.Ask:
			l.askNodes(e.Nodes)
		case core.Refresh:
			l.kernel.refresh(e.Incarnation)
			l.core.KernelAnswers(l.kernel.answersNodes())
		case core.Claim:
			l.join(e.Address, true)
		case core.Answer:
			l.kernel.add(e.Address, e.Epoch)
		case core.Release:
			l.kernel.remove(e.Address)
			l.join(e.Address, false)
		case core.Probe:
			l.probe(e.Address)
		case core.TellAll:
			l.tellAll(e.Address)
		case core.Lead:
			l.lead(e.Address, e.Node)
		case core.EndLead:
			l.endLead(e.Address, e.Node)
		case core.Recount:
			l.recount()
		case core.Hurry:
			l.soon()
		case core.Changed:
			l.changed()
		case core.Log:
			l.log.Log(context.Background(), e.Level, e.Text, e.Args...)
		}
	}
}

// soon has the link looked after at once.
func (l *Link) soon() {
	select {
	case l.hurry <- struct{}{}:
	default:
	}
}

func (l *Link) send(a *core.Advert) {
	body, err := core.Format.Marshal(a.Message(l.device.HardwareAddr), l.cluster.Keys)
	if err != nil {
		l.log.Error("no advert is sent", "error", err)
		return
	}
	l.write(l.sockets.adverts, append(link.Ethernet(advertGroup, l.device.HardwareAddr, EtherType), body...))
}

func (l *Link) askNodes(names []string) {
	l.asked.Begin()
	for _, node := range names {
		if to := l.core.Peers().MACOf(node); to != nil {
			l.write(l.sockets.adverts, l.asked.Frame(to, l.device.HardwareAddr))
		}
	}
}

// probe asks the link whether a machine has the address.
func (l *Link) probe(a netip.Addr) {
	if a.Is4() {
		l.write(l.sockets.arp, probeARP(a, l.device.HardwareAddr))
		return
	}
	l.write(l.sockets.ndp, probeNS(a, l.device.HardwareAddr))
}

// tellAll tells all machines that this node has the address.
func (l *Link) tellAll(a netip.Addr) {
	l.counts.gratuitous(a)
	if a.Is4() {
		for _, frame := range gratuitousARP(a, l.device.HardwareAddr) {
			l.write(l.sockets.arp, frame)
		}
		return
	}
	l.write(l.sockets.ndp, unsolicitedNA(a, l.device.HardwareAddr))
}

// join takes part in the group of an IPv6 address, or ends that, unless another
// address has the same.
func (l *Link) join(a netip.Addr, in bool) {
	if !a.Is6() {
		return
	}
	if in {
		l.joined[a] = true
	} else {
		delete(l.joined, a)
	}
	for other := range l.joined {
		if other != a && solicitedNode(other) == solicitedNode(a) {
			return
		}
	}
	if err := l.sockets.join(l.device, a, in, l.kernel != nil); err != nil {
		l.log.Warn("neighbor solicitations may not arrive", "address", a, "error", err)
	}
}

// write sends a frame. What a link that is down doesn't take is no loss: nobody
// would hear it.
func (l *Link) write(c net.PacketConn, frame []byte) {
	to := &packet.Addr{HardwareAddr: net.HardwareAddr(frame[:6])}
	if _, err := c.WriteTo(frame, to); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, errDown) {
		l.counts.failed()
	}
}
