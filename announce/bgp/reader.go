package bgp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// maxMessage is the longest message without RFC 8654, which this side doesn't offer.
const maxMessage = 4096

// shortest are the least lengths of messages (RFC 4271, 6.1; RFC 2918).
var shortest = map[byte]int{bgp.BGP_MSG_OPEN: 29, bgp.BGP_MSG_UPDATE: 23, bgp.BGP_MSG_NOTIFICATION: 21, bgp.BGP_MSG_ROUTE_REFRESH: 23}

// headError is a message whose head makes no sense, with the subcode that the router is told.
type headError struct {
	subcode uint8
	text    string
}

func (e *headError) Error() string { return "the router sent what is no message: " + e.text }

// complain tells the router what is wrong with the head of its message, if that is it.
func (c *connection) complain(err error) error {
	var head *headError
	if errors.As(err, &head) {
		return errors.Join(err, c.notify(bgp.BGP_ERROR_MESSAGE_HEADER_ERROR, head.subcode))
	}
	return describe(err)
}

// readMessage reads a message's type and body. Routes that the router announces
// are not kept.
func readMessage(r io.Reader) (kind byte, body []byte, err error) {
	var head [bgp.BGP_HEADER_LENGTH]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	if binary.BigEndian.Uint64(head[:]) != ^uint64(0) || binary.BigEndian.Uint64(head[8:]) != ^uint64(0) {
		return 0, nil, &headError{bgp.BGP_ERROR_SUB_CONNECTION_NOT_SYNCHRONIZED, "the marker is not all ones"}
	}
	length := int(binary.BigEndian.Uint16(head[16:]))
	kind = head[18]
	if length < max(shortest[kind], len(head)) || length > maxMessage || kind == bgp.BGP_MSG_KEEPALIVE && length > len(head) {
		return kind, nil, &headError{bgp.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, fmt.Sprintf("a message of type %d has %d bytes", kind, length)}
	}
	length -= len(head)
	if kind == bgp.BGP_MSG_UPDATE {
		_, err := io.CopyN(io.Discard, r, int64(length))
		return kind, nil, err
	}
	body = make([]byte, length)
	_, err = io.ReadFull(r, body)
	return kind, body, err
}

// parseOpen reads the body of an OPEN message.
func parseOpen(body []byte) (open *bgp.BGPOpen, err error) {
	open = &bgp.BGPOpen{}
	err = open.DecodeFromBytes(body)
	if err != nil {
		open = &bgp.BGPOpen{}
		err = open.DecodeFromBytes(withoutUnreadable(body))
	}
	if err != nil {
		return nil, fmt.Errorf("read the router's OPEN message: %w", err)
	}
	return open, nil
}

// withoutUnreadable leaves out the capabilities of an OPEN message that make no
// sense, as if the router did not have them: some programs write one or the other
// wrong, such as exabgp 4.2 that of RFC 8950.
func withoutUnreadable(body []byte) []byte {
	const fixed = 10 // version, AS number, hold time, identifier, length of what follows
	if len(body) < fixed {
		return body
	}
	kept := append([]byte{}, body[:fixed]...)
	for rest := body[fixed:]; len(rest) >= 2 && len(rest) >= 2+int(rest[1]); rest = rest[2+int(rest[1]):] {
		parameter := rest[:2+int(rest[1])]
		if parameter[0] == bgp.BGP_OPT_CAPABILITY {
			parameter = readable(parameter)
		}
		kept = append(kept, parameter...)
	}
	kept[fixed-1] = byte(len(kept) - fixed)
	return kept
}

// readable is a parameter with the capabilities that can be read.
func readable(parameter []byte) []byte {
	kept := []byte{parameter[0], 0}
	for rest := parameter[2:]; len(rest) >= 2 && len(rest) >= 2+int(rest[1]); rest = rest[2+int(rest[1]):] {
		capability := rest[:2+int(rest[1])]
		if _, err := bgp.DecodeCapability(capability); err == nil {
			kept = append(kept, capability...)
		}
	}
	kept[1] = byte(len(kept) - 2)
	return kept
}

// parseNotification says what the router complains of.
func parseNotification(body []byte) error {
	if len(body) < 2 {
		return errors.New("the router ended the session without a reason")
	}
	return fmt.Errorf("the router ended the session: %s", bgp.NewNotificationErrorCode(body[0], body[1]))
}

// expect reads the next message, which must be of a kind.
func (c *connection) expect(kind byte) ([]byte, error) {
	got, body, err := readMessage(c.Conn)
	if err != nil {
		return nil, c.complain(err)
	}
	c.update(func(st *Status) { st.Counts.received(got) })
	switch got {
	case kind:
		return body, nil
	case bgp.BGP_MSG_NOTIFICATION:
		return nil, parseNotification(body)
	}
	return nil, fmt.Errorf("the router sent a message of type %d in the place of %d", got, kind)
}

// describe says what the end of a connection means.
func describe(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the router closed the connection")
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("the router is silent: the hold time is over")
	}
	return err
}

// read takes in messages until the session ends.
func (c *connection) read(refresh chan<- struct{}) error {
	for {
		deadline := time.Time{}
		if c.agreed.hold > 0 {
			deadline = time.Now().Add(c.agreed.hold)
		}
		if err := c.SetReadDeadline(deadline); err != nil {
			return err
		}
		kind, body, err := readMessage(c.Conn)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return errors.Join(describe(err), c.notify(bgp.BGP_ERROR_HOLD_TIMER_EXPIRED, 0))
		}
		if err != nil {
			return c.complain(err)
		}
		c.update(func(st *Status) { st.Counts.received(kind) })
		switch kind {
		case bgp.BGP_MSG_KEEPALIVE, bgp.BGP_MSG_UPDATE:
		case bgp.BGP_MSG_NOTIFICATION:
			return parseNotification(body)
		case bgp.BGP_MSG_ROUTE_REFRESH:
			select {
			case refresh <- struct{}{}:
			default:
			}
		default:
			return errors.Join(fmt.Errorf("the router sent a message of type %d", kind),
				c.notify(bgp.BGP_ERROR_MESSAGE_HEADER_ERROR, bgp.BGP_ERROR_SUB_BAD_MESSAGE_TYPE))
		}
	}
}

func (n *Counts) sent(kind byte) {
	n.Sent++
	switch kind {
	case bgp.BGP_MSG_OPEN:
		n.OpensSent++
	case bgp.BGP_MSG_UPDATE:
		n.UpdatesSent++
	case bgp.BGP_MSG_KEEPALIVE:
		n.KeepalivesSent++
	case bgp.BGP_MSG_NOTIFICATION:
		n.NotificationsSent++
	}
}

func (n *Counts) received(kind byte) {
	n.Received++
	switch kind {
	case bgp.BGP_MSG_OPEN:
		n.OpensReceived++
	case bgp.BGP_MSG_UPDATE:
		n.UpdatesReceived++
	case bgp.BGP_MSG_KEEPALIVE:
		n.KeepalivesReceived++
	case bgp.BGP_MSG_NOTIFICATION:
		n.NotificationsReceived++
	case bgp.BGP_MSG_ROUTE_REFRESH:
		n.RefreshesReceived++
	}
}
