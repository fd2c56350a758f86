package simulate

import (
	"net"
	"net/netip"

	"github.com/fairway-net/fairway/announce/core"
	"github.com/fairway-net/fairway/announce/link"
)

var group = net.HardwareAddr{0x03, 0x46, 0x57, 0x4c, 0x32, 0x00}

// carryOut does what an agent has decided, as announce/l2 does.
func (m *machine) carryOut(effects []core.Effect) {
	for _, effect := range effects {
		switch e := effect.(type) {
		case core.Send:
			m.advertise(e.Advert)
		case core.Ask:
			for _, node := range e.Nodes {
				if to := m.agent.Peers().MACOf(node); to != nil {
					m.frames++
					m.send(frame{kind: kindQuestion, from: m.card, to: mac(to)})
				}
			}
		case core.Refresh:
			m.refresh()
			proved := m.kernel.asked > m.kernel.seen
			m.agent.KernelAnswers(m.kernel.can && proved)
		case core.Answer:
			m.trace("%s answers for %s, claim %d", m.name, e.Address, e.Epoch)
			m.watch.answered[e.Address]++
			if _, is := m.kernel.owned[e.Address]; m.kernel.can && !is {
				m.kernel.owned[e.Address] = e.Epoch
			}
		case core.Release:
			m.trace("%s releases %s", m.name, e.Address)
			delete(m.kernel.owned, e.Address)
		case core.Probe:
			m.frames++
			m.send(frame{kind: kindProbe, from: m.card, address: e.Address})
		case core.TellAll:
			m.frames++
			m.clients[e.Address] = m
			m.send(frame{kind: kindTell, from: m.card, address: e.Address})
		case core.Lead:
			if to := m.agent.Peers().MACOf(e.Node); to != nil {
				m.trace("%s leads connections of %s to %s", m.name, e.Address, e.Node)
				m.leads[e.Address] = [6]byte(to)
			}
		case core.EndLead:
			m.trace("%s no longer leads connections of %s", m.name, e.Address)
			delete(m.leads, e.Address)
		case core.Recount:
			m.count()
		case core.Hurry:
			m.schedule(0)
		case core.Log:
			m.trace("%s says: %s %v", m.name, e.Text, e.Args)
		}
	}
}

func (m *machine) advertise(a *core.Advert) {
	m.frames++
	body, err := core.Format.Marshal(a.Message(net.HardwareAddr(m.card[:])), m.keys)
	if err != nil {
		m.fail("%s: %s", m.name, err)
		return
	}
	var owns []netip.Addr
	for _, e := range a.Entries {
		if e.Owner && !e.Probing && !a.Leaving {
			owns = append(owns, e.Address)
		}
	}
	m.send(frame{kind: kindAdvert, from: m.card, bytes: append(link.Ethernet(group, m.card[:], 0x88b5), body...), owns: owns})
}
