package fault

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
)

// Messages and attributes of linux/netfilter/nfnetlink_queue.h.
const (
	subsystem = unix.NFNL_SUBSYS_QUEUE << 8

	messagePacket  = subsystem     // NFQNL_MSG_PACKET, 0
	messageVerdict = subsystem | 1 // NFQNL_MSG_VERDICT
	messageConfig  = subsystem | 2 // NFQNL_MSG_CONFIG

	attrPacketHeader  = 1 // NFQA_PACKET_HDR
	attrVerdictHeader = 2 // NFQA_VERDICT_HDR
	attrCommand       = 1 // NFQA_CFG_CMD
	attrParams        = 2 // NFQA_CFG_PARAMS
	attrLength        = 3 // NFQA_CFG_QUEUE_MAXLEN

	commandBind = 1 // NFQNL_CFG_CMD_BIND
	copyMeta    = 1 // NFQNL_COPY_META
	accept      = 1 // NF_ACCEPT

	queueLength = 10_000
)

// waiting is a packet that is passed on at a time.
type waiting struct {
	id   uint32
	when time.Time
}

// delay has packets of a namespace's queue wait, in their order, until ctx ends.
// Without it the kernel passes them on at once: see expr.QueueFlagBypass.
func delay(ctx context.Context, ns *netns.NS, queue uint16) error {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		return fmt.Errorf("open packet queue of %s: %w", ns, err)
	}
	if err := configure(c, queue); err != nil {
		_ = c.Close() // what failed is said
		return fmt.Errorf("open packet queue of %s: %w", ns, err)
	}
	packets := make(chan waiting, queueLength)
	go func() {
		defer close(packets)
		for {
			messages, err := c.Receive()
			if err != nil {
				return // closed
			}
			for _, m := range messages {
				if id, ok := packetID(m); ok {
					packets <- waiting{id, time.Now().Add(Delay)}
				}
			}
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	go func() {
		defer stop()
		for p := range packets {
			time.Sleep(time.Until(p.when))
			if err := verdict(c, queue, p.id); err != nil && ctx.Err() == nil {
				slog.Warn("a packet could not be passed on", "namespace", ns.String(), "error", err)
			}
		}
	}()
	return nil
}

func configure(c *netlink.Conn, queue uint16) error {
	// A full queue is dropped from; that is no error of the socket's.
	if err := c.SetOption(netlink.NoENOBUFS, true); err != nil {
		return err
	}
	params := append(binary.BigEndian.AppendUint32(nil, 0), copyMeta)
	for _, a := range []netlink.Attribute{
		{Type: attrCommand, Data: []byte{commandBind, 0, 0, 0}},
		{Type: attrParams, Data: params},
		{Type: attrLength, Data: binary.BigEndian.AppendUint32(nil, queueLength)},
	} {
		m, err := message(messageConfig, queue, a)
		if err != nil {
			return err
		}
		m.Header.Flags |= netlink.Acknowledge
		if _, err := c.Execute(m); err != nil {
			return err
		}
	}
	return nil
}

func verdict(c *netlink.Conn, queue uint16, id uint32) error {
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, accept), id)
	m, err := message(messageVerdict, queue, netlink.Attribute{Type: attrVerdictHeader, Data: header})
	if err != nil {
		return err
	}
	_, err = c.Send(m)
	return err
}

// message begins with struct nfgenmsg: family, version, and the queue's number.
func message(kind uint16, queue uint16, a netlink.Attribute) (netlink.Message, error) {
	attributes, err := netlink.MarshalAttributes([]netlink.Attribute{a})
	data := binary.BigEndian.AppendUint16([]byte{unix.AF_UNSPEC, 0}, queue)
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request},
		Data:   append(data, attributes...),
	}, err
}

// packetID finds the id in struct nfqnl_msg_packet_hdr.
func packetID(m netlink.Message) (id uint32, ok bool) {
	const general = 4 // struct nfgenmsg
	if uint16(m.Header.Type) != messagePacket || len(m.Data) < general {
		return 0, false
	}
	attributes, err := netlink.UnmarshalAttributes(m.Data[general:])
	if err != nil {
		return 0, false
	}
	for _, a := range attributes {
		if a.Type == attrPacketHeader && len(a.Data) >= 4 {
			return binary.BigEndian.Uint32(a.Data), true
		}
	}
	return 0, false
}
