package hook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/fairway-net/fairway/dns/outside"
)

// DNSUpdate is a DNS server that takes updates (RFC 2136): the names of load
// balancer addresses in one of its zones are kept there. Each name that this
// hook makes has a TXT record beside it that says whose it is; every update asks the server
// to look at that first, so that records of others are never touched.
type DNSUpdate struct {
	Server  string // host:port
	Zone    string // with the final dot
	Owner   string // tells the records of several clusters apart
	Key     *TSIG  // nil signs nothing
	TTL     time.Duration
	Timeout time.Duration
	Log     *slog.Logger

	have map[string]entry // what this hook has written, by name; nil is unknown
}

// WithPort is an address with a port, which may have one already.
func WithPort(address, port string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), port)
}

// TSIG is a key that updates are signed with.
type TSIG struct{ Name, Algorithm, Secret string }

// entry is what a name is to lead to.
type entry struct {
	ttl       uint32
	addresses string // sorted, separated by spaces
	alias     string // another name, in the place of addresses
}

// String implements Target.
func (d *DNSUpdate) String() string { return "DNS server " + d.Server + ", zone " + d.Zone }

// Deliver implements Target.
func (d *DNSUpdate) Deliver(ctx context.Context, s *State) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	if d.have == nil {
		have, err := d.readOwn(ctx)
		if err != nil {
			d.Log.Warn("the zone can't be read, so names of Services deleted while no hook ran stay; allow the key to transfer the zone", "server", d.Server, "zone", d.Zone, "error", err)
		}
		d.have = have
	}
	want, of, answer := d.wanted(s)
	var errs []error
	for _, name := range keys(d.have, want) {
		w, wanted := want[name]
		if h, there := d.have[name]; wanted && there && h == w {
			continue
		}
		err := d.set(ctx, name, w, wanted)
		switch {
		case errors.Is(err, errTaken):
			answer.warn(of[name], fmt.Sprintf("DNS name %s: has records already that aren't Fairway's; they stay", strings.TrimSuffix(name, ".")))
		case err != nil:
			errs = append(errs, fmt.Errorf("update %s: %w", name, err))
			continue
		case !wanted:
			delete(d.have, name)
		default:
			d.have[name] = w
		}
	}
	return answer, errors.Join(errs...)
}

// wanted are the records that there should be, and which Service each is of. Of
// Services that want the same name the oldest has it.
func (d *DNSUpdate) wanted(s *State) (map[string]entry, map[string]string, *Answer) {
	want, of := map[string]entry{}, map[string]string{}
	answer := &Answer{Services: map[string]ServiceAnswer{}}
	services := slices.Clone(s.Services)
	slices.SortFunc(services, func(a, b *Service) int { return strings.Compare(a.age, b.age) })
	for _, service := range services {
		if len(service.Addresses) == 0 {
			continue
		}
		names, problems := outside.Names(d.Zone, service.Namespace, service.Name, service.Annotations)
		ttl, err := outside.TTL(service.Annotations, d.TTL)
		if err != nil {
			problems = append(problems, err)
		}
		r := recordOf(service.Addresses, ttl)
		for _, name := range names {
			if other := of[name]; other != "" {
				problems = append(problems, fmt.Errorf("DNS name %s: is Service %s's, which is older", strings.TrimSuffix(name, "."), other))
				continue
			}
			want[name], of[name] = r, service.Key()
		}
		for _, problem := range problems {
			answer.warn(service.Key(), problem.Error())
		}
	}
	return want, of, answer
}

// recordOf leads to IP addresses if there are any, else to the first name.
func recordOf(addresses []string, ttl uint32) entry {
	r := entry{ttl: ttl}
	var ips []string
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, a.Unmap().String())
		} else if r.alias == "" {
			r.alias = strings.ToLower(strings.TrimSuffix(text, ".")) + "."
		}
	}
	slices.Sort(ips)
	if r.addresses = strings.Join(slices.Compact(ips), " "); r.addresses != "" {
		r.alias = ""
	}
	return r
}

// errTaken is that a name has records that this hook hasn't made.
var errTaken = errors.New("the name is somebody else's")

// set makes a name lead where it is wanted, or removes it. First as one that this
// hook has made, then, if it hasn't, as a new one.
func (d *DNSUpdate) set(ctx context.Context, name string, want entry, wanted bool) error {
	mark := d.mark(name)
	m := new(dns.Msg)
	m.SetUpdate(d.Zone)
	m.Used([]dns.RR{mark})
	m.RemoveRRset([]dns.RR{header(name, dns.TypeA), header(name, dns.TypeAAAA), header(name, dns.TypeCNAME)})
	if wanted {
		m.Insert(want.rrs(name))
	} else {
		m.RemoveRRset([]dns.RR{mark})
	}
	code, err := d.exchange(ctx, m)
	if err != nil || code == dns.RcodeSuccess {
		return err
	}
	if code != dns.RcodeNXRrset {
		return rcode(code)
	}
	if !wanted {
		return nil // it isn't ours any more
	}
	m = new(dns.Msg)
	m.SetUpdate(d.Zone)
	m.RRsetNotUsed([]dns.RR{header(name, dns.TypeA), header(name, dns.TypeAAAA), header(name, dns.TypeCNAME), header(mark.Header().Name, dns.TypeTXT)})
	m.Insert(append(want.rrs(name), mark))
	switch code, err = d.exchange(ctx, m); {
	case err != nil || code == dns.RcodeSuccess:
		return err
	case code == dns.RcodeYXRrset:
		return errTaken
	}
	return rcode(code)
}

func header(name string, rrtype uint16) dns.RR {
	return &dns.ANY{Hdr: dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET}}
}

// markPrefix is the first label of the names whose TXT records say whose a name is.
const markPrefix = "_fairway."

// mark is the record beside a name.
func (d *DNSUpdate) mark(name string) dns.RR {
	if rest, wild := strings.CutPrefix(name, "*."); wild {
		name = "_wildcard." + rest
	}
	return &dns.TXT{
		Hdr: dns.RR_Header{Name: markPrefix + name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: uint32(d.TTL / time.Second)},
		Txt: []string{"heritage=fairway,owner=" + d.Owner},
	}
}

// marked is the name that a mark is beside.
func marked(mark string) (string, bool) {
	name, is := strings.CutPrefix(strings.ToLower(mark), markPrefix)
	if rest, wild := strings.CutPrefix(name, "_wildcard."); wild {
		name = "*." + rest
	}
	return name, is
}

func (r entry) rrs(name string) []dns.RR {
	h := dns.RR_Header{Name: name, Class: dns.ClassINET, Ttl: r.ttl}
	if r.alias != "" {
		h.Rrtype = dns.TypeCNAME
		return []dns.RR{&dns.CNAME{Hdr: h, Target: r.alias}}
	}
	var list []dns.RR
	for text := range strings.FieldsSeq(r.addresses) {
		a, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		if h.Rrtype = dns.TypeA; a.Is6() {
			h.Rrtype = dns.TypeAAAA
			list = append(list, &dns.AAAA{Hdr: h, AAAA: a.AsSlice()})
			continue
		}
		list = append(list, &dns.A{Hdr: h, A: a.AsSlice()})
	}
	return list
}

func (d *DNSUpdate) exchange(ctx context.Context, m *dns.Msg) (int, error) {
	c := &dns.Client{Net: "tcp", Timeout: d.Timeout}
	if d.Key != nil {
		c.TsigSecret = map[string]string{d.Key.Name: d.Key.Secret}
		const fudge = 300
		m.SetTsig(d.Key.Name, d.Key.Algorithm, fudge, time.Now().Unix())
	}
	answer, _, err := c.ExchangeContext(ctx, m, d.Server)
	if answer != nil && answer.Rcode == dns.RcodeNotAuth {
		return 0, rcode(answer.Rcode) // says more than that the answer isn't signed
	}
	if err != nil {
		return 0, err
	}
	return answer.Rcode, nil
}

// rcode is an answer of the server that is a failure.
func rcode(code int) error {
	why := map[int]string{
		dns.RcodeRefused: "the zone's update policy doesn't allow it",
		dns.RcodeNotAuth: "the server isn't the zone's, or doesn't know the key",
		dns.RcodeNotZone: "the name isn't in the zone",
	}
	if text := why[code]; text != "" {
		return fmt.Errorf("%s: %s", dns.RcodeToString[code], text)
	}
	return errors.New(dns.RcodeToString[code])
}

// readOwn reads the zone, and what in it this hook has made.
func (d *DNSUpdate) readOwn(ctx context.Context) (map[string]entry, error) {
	own := map[string]entry{}
	m := new(dns.Msg)
	m.SetAxfr(d.Zone)
	t := &dns.Transfer{DialTimeout: d.Timeout, ReadTimeout: d.Timeout}
	if d.Key != nil {
		t.TsigSecret = map[string]string{d.Key.Name: d.Key.Secret}
		const fudge = 300
		m.SetTsig(d.Key.Name, d.Key.Algorithm, fudge, time.Now().Unix())
	}
	envelopes, err := t.In(m, d.Server)
	if err != nil {
		return own, fmt.Errorf("transfer zone: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = t.Close() })() // its reader says why it ended
	addresses, ours := map[string]entry{}, map[string]bool{}
	for e := range envelopes {
		if e.Error != nil {
			return own, fmt.Errorf("transfer zone: %w", e.Error)
		}
		for _, rr := range e.RR {
			d.note(rr, addresses, ours)
		}
	}
	for name := range ours {
		own[name] = addresses[name]
	}
	return own, nil
}

// note takes in a record of the zone.
func (d *DNSUpdate) note(rr dns.RR, found map[string]entry, ours map[string]bool) {
	h := rr.Header()
	name := strings.ToLower(h.Name)
	r := found[name]
	r.ttl = h.Ttl
	switch v := rr.(type) {
	case *dns.A:
		r.add(v.A.String())
	case *dns.AAAA:
		r.add(v.AAAA.String())
	case *dns.CNAME:
		r.alias = strings.ToLower(v.Target)
	case *dns.TXT:
		if of, is := marked(name); is && strings.Join(v.Txt, "") == "heritage=fairway,owner="+d.Owner {
			ours[of] = true
		}
		return
	default:
		return
	}
	found[name] = r
}

func (r *entry) add(address string) {
	list := append(strings.Fields(r.addresses), address)
	slices.Sort(list)
	r.addresses = strings.Join(list, " ")
}

var (
	keyStatement = regexp.MustCompile(`(?s)key\s+"?([^"\s{]+)"?\s*\{(.*?)\}`)
	keySetting   = regexp.MustCompile(`(algorithm|secret)\s+"?([^"\s;]+)"?\s*;`)
)

// ReadKey reads a key as tsig-keygen writes it, for BIND's configuration.
func ReadKey(file string) (*TSIG, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	found := keyStatement.FindSubmatch(data)
	if found == nil {
		return nil, fmt.Errorf("read key: %s: has no key \"NAME\" { algorithm ...; secret ...; }, as tsig-keygen writes it", file)
	}
	key := &TSIG{Name: dns.Fqdn(strings.ToLower(string(found[1]))), Algorithm: dns.HmacSHA256}
	for _, setting := range keySetting.FindAllSubmatch(found[2], -1) {
		if string(setting[1]) == "secret" {
			key.Secret = string(setting[2])
		} else {
			key.Algorithm = dns.Fqdn(strings.ToLower(string(setting[2])))
		}
	}
	if key.Secret == "" {
		return nil, fmt.Errorf("read key: %s: key %s has no secret", file, key.Name)
	}
	return key, nil
}
