package dns

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// Probe asks a server for the version of a zone's schema, which every cluster
// DNS has; the error says why it is of no use.
func Probe(ctx context.Context, at netip.AddrPort, zone string, timeout time.Duration) error {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn("dns-version."+zone), dns.TypeTXT)
	answer, _, err := (&dns.Client{Timeout: timeout}).ExchangeContext(ctx, m, at.String())
	if err != nil {
		return fmt.Errorf("ask DNS server %s: %w", at, err)
	}
	if answer.Rcode != dns.RcodeSuccess || len(answer.Answer) == 0 {
		return fmt.Errorf("ask DNS server %s: it answers %s", at, dns.RcodeToString[answer.Rcode])
	}
	return nil
}
