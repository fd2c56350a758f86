package check

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// askICMP sends an echo request and waits for its reply.
func askICMP(t Target, deadline time.Time) (err error) {
	p, err := openPinger(t.Addr.Addr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.send(); err != nil {
		return err
	}
	return p.await(deadline)
}

// pinger exchanges echo requests and replies with one address: with a ping socket, or a raw one
// where those aren't allowed (sysctl net.ipv4.ping_group_range).
type pinger struct {
	*icmp.PacketConn
	to       net.Addr
	raw      bool
	id, seq  int // of the first request
	sent     int
	request  icmp.Type
	reply    icmp.Type
	protocol int
}

func openPinger(a netip.Addr) (*pinger, error) {
	p := &pinger{request: ipv4.ICMPTypeEcho, reply: ipv4.ICMPTypeEchoReply, protocol: 1, id: rand.IntN(1 << 16), seq: rand.IntN(1 << 15)}
	network, raw, any := "udp4", "ip4:icmp", "0.0.0.0"
	if a.Is6() {
		network, raw, any = "udp6", "ip6:ipv6-icmp", "::"
		p.request, p.reply, p.protocol = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58
	}
	p.to = &net.UDPAddr{IP: a.AsSlice()}
	c, err := icmp.ListenPacket(network, any)
	if errors.Is(err, os.ErrPermission) {
		p.raw, p.to = true, &net.IPAddr{IP: a.AsSlice()}
		c, err = icmp.ListenPacket(raw, any)
	}
	if err != nil {
		return nil, fmt.Errorf("open ICMP socket: %w", err)
	}
	p.PacketConn = c
	return p, nil
}

func (p *pinger) send() error {
	request := icmp.Message{Type: p.request, Body: &icmp.Echo{ID: p.id, Seq: p.seq + p.sent, Data: []byte("fairway-health-check")}}
	packet, err := request.Marshal(nil)
	if err != nil {
		return fmt.Errorf("make echo request: %w", err)
	}
	p.sent++
	if _, err := p.WriteTo(packet, p.to); err != nil {
		return fmt.Errorf("send echo request: %w", err)
	}
	return nil
}

// await waits for the reply to any of the requests. What a raw socket hears of others is told
// apart by the identifier, which the kernel sets for ping sockets.
func (p *pinger) await(deadline time.Time) error {
	if err := p.SetReadDeadline(deadline); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	buffer := make([]byte, 1500)
	for {
		n, _, err := p.ReadFrom(buffer)
		if err != nil {
			return fmt.Errorf("read echo reply: %w", err)
		}
		message, err := icmp.ParseMessage(p.protocol, buffer[:n])
		if err != nil || message.Type != p.reply {
			continue
		}
		if answer, ok := message.Body.(*icmp.Echo); ok && answer.Seq >= p.seq && answer.Seq < p.seq+p.sent && (!p.raw || answer.ID == p.id) {
			return nil
		}
	}
}

// Echoes reports whether one of some addresses answers one of several echo requests. An error
// says that none could be asked.
func Echoes(ctx context.Context, addresses []netip.Addr, times int, every time.Duration) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var answers atomic.Bool
	errs := make([]error, len(addresses))
	var asking sync.WaitGroup
	for i, a := range addresses {
		asking.Go(func() {
			p, err := openPinger(a)
			if err != nil {
				errs[i] = err
				return
			}
			defer p.Close()
			for n := 0; n < times && ctx.Err() == nil; n++ {
				// One that there is no way to now is silent, as one that doesn't answer is.
				next := time.Now().Add(every)
				if p.send() == nil && p.await(next) == nil {
					answers.Store(true)
					cancel()
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Until(next)):
				}
			}
		})
	}
	asking.Wait()
	return answers.Load(), allOf(errs)
}

// allOf is nil if one of some errors is.
func allOf(errs []error) error {
	if slices.Contains(errs, nil) {
		return nil
	}
	return errors.Join(errs...)
}
