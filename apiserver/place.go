package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/fairway-net/fairway/apiserver/pki"
)

// A server that joins shows that it is where it says the others reach it: until it has
// the keys, it answers there with a key of its own, which it names in its request. So a
// token that somebody else has seen gives the keys of the cluster to nobody but the holder of
// that address, and a port that is closed is noticed before the server is a member.

// placeTime bounds how long it is tried to reach a server that joins.
const placeTime = 5 * time.Second

// place is where a server that joins answers.
type place struct {
	listener net.Listener
	key      string // pki.Hash of what it shows
	done     sync.WaitGroup
}

// holdPlace answers at the address of this server's etcd.
func holdPlace(at netip.AddrPort) (*place, error) {
	pair, err := pki.SelfSigned("fairway-joining")
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("read own certificate: %w", err)
	}
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("listen for other servers (another one needs another --peer-port): %w", err)
	}
	p := &place{listener: l, key: pki.Hash(certificate.Leaf)}
	p.done.Go(func() {
		p.serve(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}})
	})
	return p, nil
}

func (p *place) serve(config *tls.Config) {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.done.Go(func() {
			defer c.Close() //nolint:errcheck // nothing was written that could be lost
			ctx, cancel := context.WithTimeout(context.Background(), placeTime)
			defer cancel()
			secured := tls.Server(c, config)
			if secured.HandshakeContext(ctx) == nil {
				_ = secured.CloseWrite() // whoever asked has seen the key
			}
		})
	}
}

func (p *place) leave() error {
	err := p.listener.Close()
	p.done.Wait()
	if err != nil {
		return fmt.Errorf("stop answering for etcd: %w", err)
	}
	return nil
}

// provePlace makes sure that whoever asks to join answers at its peer URL.
func provePlace(ctx context.Context, wanted joinRequest) error {
	u, err := url.Parse(wanted.PeerURL)
	if err != nil {
		return fmt.Errorf("peer URL %q: %w", wanted.PeerURL, err)
	}
	ctx, cancel := context.WithTimeout(ctx, placeTime)
	defer cancel()
	dialer := &tls.Dialer{Config: &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies
		VerifyConnection: func(state tls.ConnectionState) error {
			if wanted.Key == "" || pki.Hash(state.PeerCertificates[0]) != wanted.Key {
				return errors.New("another program answers there")
			}
			return nil
		},
	}}
	c, err := dialer.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return fmt.Errorf("this server doesn't reach %s at %s, where it would join (is the port open, and --advertise-address right?): %w", wanted.Name, wanted.PeerURL, err)
	}
	if err := c.Close(); err != nil {
		return fmt.Errorf("close connection to %s: %w", wanted.PeerURL, err)
	}
	return nil
}
