package check

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// askUDP sends the payload and waits for an answer, any one or one with the
// expected text. A port that nobody has refuses (ICMP port unreachable).
func askUDP(t Target, deadline time.Time) (err error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(t.Addr))
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.SetDeadline(deadline); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if _, err := c.Write([]byte(t.Spec.Payload)); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	answer := make([]byte, 64<<10)
	n, err := c.Read(answer)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if !strings.Contains(string(answer[:n]), t.Spec.Text) {
		return unexpectedError("the expected text is not in the answer")
	}
	return nil
}

// askICMP sends an echo request and waits for its reply: with a ping socket, or
// a raw one where those aren't allowed (sysctl net.ipv4.ping_group_range).
func askICMP(t Target, deadline time.Time) error {
	network, raw, any := "udp4", "ip4:icmp", "0.0.0.0"
	if t.Addr.Addr().Is6() {
		network, raw, any = "udp6", "ip6:ipv6-icmp", "::"
	}
	c, err := icmp.ListenPacket(network, any)
	if errors.Is(err, os.ErrPermission) {
		network = raw
		c, err = icmp.ListenPacket(raw, any)
	}
	if err != nil {
		return fmt.Errorf("open ICMP socket: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return echo(c, t, network == raw, deadline)
}

// echo exchanges one echo request and reply. What a raw socket hears of others
// is told apart by the identifier, which the kernel sets for ping sockets.
func echo(c *icmp.PacketConn, t Target, raw bool, deadline time.Time) error {
	request := icmp.Message{Type: ipv4.ICMPTypeEcho}
	reply, protocol := icmp.Type(ipv4.ICMPTypeEchoReply), 1
	if t.Addr.Addr().Is6() {
		request.Type, reply, protocol = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58
	}
	id, seq := rand.IntN(1<<16), rand.IntN(1<<16)
	request.Body = &icmp.Echo{ID: id, Seq: seq, Data: []byte("fairway-health-check")}
	packet, err := request.Marshal(nil)
	if err != nil {
		return fmt.Errorf("make echo request: %w", err)
	}
	var to net.Addr = &net.UDPAddr{IP: t.Addr.Addr().AsSlice()}
	if raw {
		to = &net.IPAddr{IP: t.Addr.Addr().AsSlice()}
	}
	if err := c.SetDeadline(deadline); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if _, err := c.WriteTo(packet, to); err != nil {
		return fmt.Errorf("send echo request: %w", err)
	}
	buffer := make([]byte, 1500)
	for {
		n, _, err := c.ReadFrom(buffer)
		if err != nil {
			return fmt.Errorf("read echo reply: %w", err)
		}
		message, err := icmp.ParseMessage(protocol, buffer[:n])
		if err != nil || message.Type != reply {
			continue
		}
		if answer, ok := message.Body.(*icmp.Echo); ok && answer.Seq == seq && (!raw || answer.ID == id) {
			return nil
		}
	}
}
