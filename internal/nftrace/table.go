package nftrace

import (
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Names of chains. The chains that say what a packet has passed have no rules: the
// kernel tells of their policy, behind all other chains of the hook.
const (
	beginPrefix  = "begin-"
	repliesChain = "replies"
	passedPrefix = "passed-"
)

// hooks that packets pass, by the names that nft gives them.
var hooks = map[string]*nftables.ChainHook{
	"prerouting": nftables.ChainHookPrerouting, "input": nftables.ChainHookInput, "forward": nftables.ChainHookForward,
	"output": nftables.ChainHookOutput, "postrouting": nftables.ChainHookPostrouting,
}

// Priorities: the first of all, and the last, with netfilter's own between them.
// Answers are known as such once conntrack has seen them (-200).
var (
	first          = nftables.ChainPriorityFirst
	last           = nftables.ChainPriorityRef(math.MaxInt32 - 1)
	afterConntrack = nftables.ChainPriorityRef(-199)
)

// makeTable makes the session's table, which its socket owns.
func (s *Session) makeTable(flows []Flow, replies bool) error {
	var socket *netlink.Conn
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		socket = c
		return nil
	}))
	if err != nil {
		return fmt.Errorf("open nf_tables: %w", err)
	}
	s.owner = conn
	if err := addOwned(socket, s.table); err != nil {
		return permission("make table "+s.table.Name, err)
	}
	for _, name := range []string{"prerouting", "output"} {
		chain := s.chain(beginPrefix+name, hooks[name], first)
		for _, f := range flows {
			conn.AddRule(&nftables.Rule{Table: s.table, Chain: chain, Exprs: f.begins()})
		}
	}
	if replies {
		chain := s.chain(repliesChain, nftables.ChainHookPrerouting, afterConntrack)
		for _, f := range flows {
			conn.AddRule(&nftables.Rule{Table: s.table, Chain: chain, Exprs: f.returns()})
		}
	}
	for name, hook := range hooks {
		s.chain(passedPrefix+name, hook, last)
	}
	if err := conn.Flush(); err != nil {
		return permission("make table "+s.table.Name, err)
	}
	return nil
}

func (s *Session) chain(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	return s.owner.AddChain(&nftables.Chain{Name: name, Table: s.table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: priority})
}

// ownerFlag is NFT_TABLE_F_OWNER (linux/netfilter/nf_tables.h).
const ownerFlag = 2

// addOwned adds a table that the kernel removes when the socket is closed.
func addOwned(socket *netlink.Conn, table *nftables.Table) error {
	attributes, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_TABLE_NAME, Data: append([]byte(table.Name), 0)},
		{Type: unix.NFTA_TABLE_FLAGS, Data: binaryutil.BigEndian.PutUint32(ownerFlag)},
	})
	if err != nil {
		return err
	}
	subsystem := binaryutil.BigEndian.PutUint16(unix.NFNL_SUBSYS_NFTABLES)
	border := append([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0}, subsystem...)
	_, err = socket.SendMessages([]netlink.Message{
		{Header: netlink.Header{Type: unix.NFNL_MSG_BATCH_BEGIN, Flags: netlink.Request}, Data: border},
		{
			Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE, Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl},
			Data:   append([]byte{byte(table.Family), unix.NFNETLINK_V0, 0, 0}, attributes...),
		},
		{Header: netlink.Header{Type: unix.NFNL_MSG_BATCH_END, Flags: netlink.Request}, Data: border},
	})
	if err != nil {
		return err
	}
	_, err = socket.Receive()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return &kernel.MissingError{What: "nf_tables tables with an owner", Since: "5.12", Err: err}
	}
	return err
}

// begins matches packets that begin a connection of the flow, as they arrive or are
// sent, and has them traced. A flow without a port is followed five times a
// second at most, so that a busy Service isn't slowed down.
func (f Flow) begins() []expr.Any {
	six := f.Frontend.Addr().Is6() || f.Client.Addr().Is6()
	list := append(protocols(six), equal(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, []byte{byte(f.Proto)})...)
	if a := f.Client.Addr(); isOne(a) {
		list = append(list, equal(address(a, false), a.AsSlice())...)
	}
	if a := f.Frontend.Addr(); isOne(a) {
		list = append(list, equal(address(a, true), a.AsSlice())...)
	}
	for offset, port := range map[uint32]uint16{0: f.Client.Port(), 2: f.Frontend.Port()} {
		if port != 0 {
			list = append(list, equal(transport(offset, 2), binaryutil.BigEndian.PutUint16(port))...)
		}
	}
	if f.Proto == model.TCP {
		const syn, synAck = 0x02, 0x12
		list = append(list, transport(13, 1),
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{synAck}, Xor: []byte{0}},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{syn}})
	}
	if f.Client.Port() == 0 {
		list = append(list, &expr.Limit{Type: expr.LimitTypePkts, Rate: 5, Unit: expr.LimitTimeSecond, Burst: 5})
	}
	return append(list, traced()...)
}

// returns matches what conntrack has found to be an answer to the flow: also an
// ICMP message about it.
func (f Flow) returns() []expr.Any {
	const reply = 1 // IP_CT_DIR_REPLY
	a := f.Frontend.Addr()
	list := protocols(a.Is6())
	list = append(list, equal(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, []byte{reply})...)
	list = append(list, equal(&expr.Ct{Key: expr.CtKeyPROTOCOL, Register: 1}, []byte{byte(f.Proto)})...)
	list = append(list, equal(&expr.Ct{Key: expr.CtKeyDST, Register: 1}, a.AsSlice())...)
	if c := f.Client.Addr(); isOne(c) && f.Client.Port() != 0 {
		list = append(list, equal(&expr.Ct{Key: expr.CtKeySRC, Register: 1}, c.AsSlice())...)
	}
	for key, port := range map[expr.CtKey]uint16{expr.CtKeyPROTOSRC: f.Client.Port(), expr.CtKeyPROTODST: f.Frontend.Port()} {
		if port != 0 {
			list = append(list, equal(&expr.Ct{Key: key, Register: 1}, binaryutil.BigEndian.PutUint16(port))...)
		}
	}
	return append(append(list, &expr.Limit{Type: expr.LimitTypePkts, Rate: 20, Unit: expr.LimitTimeSecond, Burst: 20}), traced()...)
}

// traced has the kernel trace the packet, and ends the chain.
func traced() []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: []byte{1}},
		&expr.Meta{Key: expr.MetaKeyNFTRACE, SourceRegister: true, Register: 1},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}
}

// equal loads something into register 1 and compares it.
func equal(load expr.Any, data []byte) []expr.Any {
	return []expr.Any{load, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data}}
}

// protocols matches packets of an address family.
func protocols(six bool) []expr.Any {
	family := byte(unix.NFPROTO_IPV4)
	if six {
		family = unix.NFPROTO_IPV6
	}
	return equal(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, []byte{family})
}

// address loads a packet's source or destination.
func address(a netip.Addr, destination bool) expr.Any {
	offset, size := uint32(12), uint32(4)
	if a.Is6() {
		offset, size = 8, 16
	}
	if destination {
		offset += size
	}
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size}
}

func transport(offset, size uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: size}
}
