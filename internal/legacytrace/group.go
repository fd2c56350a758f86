package legacytrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// Of linux/netfilter/nfnetlink_log.h.
const (
	configMessage = unix.NFNL_SUBSYS_ULOG<<8 | 1
	packetMessage = unix.NFNL_SUBSYS_ULOG << 8

	attrCommand   = 1
	attrMode      = 2
	attrTimeout   = 4
	attrThreshold = 5

	commandBind = 1
	copyPacket  = 2

	packetPrefix  = 10
	packetPayload = 9
	packetHeader  = 1
	packetIn      = 4
	packetOut     = 5
)

// headers is how many bytes of a packet are told.
const headers = 128

// errBusy says that somebody else reads the group, which only one can.
var errBusy = errors.New("another program reads group 0 of nfnetlink_log (ulogd, perhaps), by which the kernel tells of rules of iptables-legacy")

// openGroup binds group 0, where the kernel tells of traced packets. The binding ends
// with the socket.
func openGroup() (*netlink.Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := c.SetReadBuffer(1 << 20); err != nil && !errors.Is(err, unix.EPERM) {
		return nil, errors.Join(fmt.Errorf("enlarge netlink buffer: %w", err), c.Close())
	}
	mode := binary.BigEndian.AppendUint32(nil, headers)
	for _, a := range []netlink.Attribute{
		{Type: attrCommand, Data: []byte{commandBind}},
		{Type: attrMode, Data: append(mode, copyPacket, 0)},
		{Type: attrThreshold, Data: binary.BigEndian.AppendUint32(nil, 1)}, // tell of each at once
	} {
		if err := configure(c, a); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

func configure(c *netlink.Conn, a netlink.Attribute) error {
	attributes, err := netlink.MarshalAttributes([]netlink.Attribute{a})
	if err != nil {
		return err
	}
	_, err = c.Execute(netlink.Message{
		Header: netlink.Header{Type: configMessage, Flags: netlink.Request | netlink.Acknowledge},
		Data:   append([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}, attributes...), // group 0
	})
	switch {
	case errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) || errors.Is(err, os.ErrPermission):
		return errBusy // nftrace has found that this process has CAP_NET_ADMIN
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP):
		err = &kernel.MissingError{What: "nfnetlink_log (CONFIG_NETFILTER_NETLINK_LOG)", Err: err}
	}
	if err != nil {
		return fmt.Errorf("bind group 0 of nfnetlink_log: %w", err)
	}
	return nil
}
