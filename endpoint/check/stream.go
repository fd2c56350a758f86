package check

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// askStream connects and has a conversation, if there is one.
func askStream(t Target, deadline time.Time, talk conversation) (err error) {
	c, err := connect(t.Addr, talk != nil, deadline)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer c.close()
	if talk == nil {
		return nil
	}
	return talk(t, c)
}

// overTLS has a conversation over TLS. Certificates are not verified: most
// endpoints are reached by an address that is in none, and no secret is told.
func overTLS(talk conversation) conversation {
	return func(t Target, c net.Conn) error {
		name := t.Spec.Host
		if host, _, err := net.SplitHostPort(name); err == nil {
			name = host
		}
		secured := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true, MinVersion: tls.VersionTLS10})
		if err := secured.Handshake(); err != nil {
			return fmt.Errorf("TLS handshake: %w", err)
		}
		if talk == nil {
			return nil
		}
		return talk(t, secured)
	}
}
