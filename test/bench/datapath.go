package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/lab/topology"
)

// measureDatapath makes Services of its own: for streams, for datagrams, and
// with 1, 100 and 1,000 backends.
func measureDatapath(ctx context.Context, p *subject) (err error) {
	var made []*service
	defer func() {
		err = errors.Join(err, each(len(made), writers, func(i int) error { return p.api.deleteService(ctx, made[i]) }))
	}()
	add := func(name string, protocol corev1.Protocol, port int32, backends int) (*service, error) {
		s, err := p.api.createService(ctx, name, protocol, port)
		if err != nil {
			return nil, err
		}
		made = append(made, s)
		return s, p.api.createSlice(ctx, s, protocol, port, p.api.world.addresses(backends))
	}
	stream, err := add("stream", corev1.ProtocolTCP, streamPort, 3)
	if err != nil {
		return err
	}
	sink, err := add("sink", corev1.ProtocolUDP, sinkPort, 3)
	if err != nil {
		return err
	}
	var lanes []*lane
	for _, n := range []int{1, 100, 1000} {
		s, err := add(fmt.Sprintf("fan%d", n), corev1.ProtocolTCP, helloPort, n)
		if err != nil {
			return err
		}
		lanes = append(lanes, &lane{name: fmt.Sprint(n), from: p.site.client.Host, to: func() netip.AddrPort { return s.vip }})
	}
	last := made[len(made)-1]
	p.site.workers.do(func() { _, err = reach(ctx, last.vip, endpointRange.Contains) })
	if err != nil {
		return err
	}
	if err := p.fan(ctx, lanes, last.addrs[0]); err != nil {
		return err
	}
	if err := p.streams(ctx, stream); err != nil {
		return err
	}
	return p.datagrams(ctx, sink)
}

func (p *subject) fan(ctx context.Context, lanes []*lane, to netip.Addr) error {
	direct := &lane{name: "direct", from: p.site.client.Host, to: func() netip.AddrPort { return netip.AddrPortFrom(to, helloPort) }}
	if err := compare(ctx, append(lanes, direct)); err != nil {
		return err
	}
	p.record("fan", "%.0f/s, %.0f/s, %.0f/s (direct %.0f/s)", lanes[0].rate(), lanes[1].rate(), lanes[2].rate(), direct.rate())
	return nil
}

const (
	streamsAtOnce = 4
	flowSlice     = 400 * time.Millisecond
	flowRounds    = 4
)

// streams compares the throughput of long connections.
func (p *subject) streams(ctx context.Context, s *service) error {
	var vip, direct float64
	for range flowRounds {
		for _, way := range []struct {
			to  netip.AddrPort
			sum *float64
		}{{s.vip, &vip}, {netip.AddrPortFrom(s.addrs[0], streamPort), &direct}} {
			n, err := push(ctx, p.site.client.Host, "tcp4", way.to, streamsAtOnce, make([]byte, 1<<17))
			if err != nil {
				return err
			}
			*way.sum += float64(n)
		}
	}
	seconds := (flowRounds * flowSlice).Seconds()
	p.record("streams", "%.2f of direct (%.1f of %.1f Gbit/s)", vip/direct, vip*8/1e9/seconds, direct*8/1e9/seconds)
	return nil
}

// datagrams compares how many UDP packets of 64 bytes are sent on one flow.
// Sending is part of the same system call as everything up to the receiver's
// queue, so this is what the path takes.
func (p *subject) datagrams(ctx context.Context, s *service) error {
	payload := make([]byte, 64)
	var vip, direct float64
	for range flowRounds {
		n, err := push(ctx, p.site.client.Host, "udp4", s.vip, 1, payload)
		if err != nil {
			return err
		}
		vip += float64(n) / float64(len(payload))
		if n, err = push(ctx, p.site.client.Host, "udp4", netip.AddrPortFrom(s.addrs[0], sinkPort), 1, payload); err != nil {
			return err
		}
		direct += float64(n) / float64(len(payload))
	}
	seconds := (flowRounds * flowSlice).Seconds()
	p.record("datagrams", "%.2f of direct (%.0f of %.0f packets/s)", vip/direct, vip/seconds, direct/seconds)
	return nil
}

// push sends for one slice of time over so many connections, and returns the
// number of bytes.
func push(ctx context.Context, from *topology.Host, network string, to netip.AddrPort, connections int, buffer []byte) (int64, error) {
	type result struct {
		n   int64
		err error
	}
	results := make(chan result, connections)
	var list []net.Conn
	defer func() {
		for _, c := range list {
			c.Close() //nolint:errcheck // all has been sent
		}
	}()
	for range connections {
		c, err := from.DialContext(ctx, network, to.String())
		if err != nil {
			return 0, fmt.Errorf("connect to %s: %w", to, err)
		}
		list = append(list, c)
	}
	until := time.Now().Add(flowSlice)
	for _, c := range list {
		go func() {
			var r result
			for r.err == nil && time.Now().Before(until) {
				var n int
				n, r.err = c.Write(buffer)
				r.n += int64(n)
			}
			results <- r
		}()
	}
	var sum int64
	var errs []error
	for range list {
		r := <-results
		sum += r.n
		errs = append(errs, r.err)
	}
	if err := errors.Join(errs...); err != nil {
		return sum, fmt.Errorf("send to %s: %w", to, err)
	}
	return sum, nil
}
