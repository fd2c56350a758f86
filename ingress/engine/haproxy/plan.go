package haproxy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairway-net/fairway/ingress/model"
)

// plan is what a table makes of haproxy.
type plan struct {
	sockets  []*socket
	entries  map[string]map[string]string // of maps: file, key, value
	programs map[string]string            // by name
	backends map[int]map[string]server    // by number of the slot
	owners   map[int]need                 // whose slots they are
	pems     map[string]string            // certificates of listeners, by file
	kept     map[string]string            // files that change with the configuration only
}

// socket is one of the table as haproxy has it.
type socket struct {
	model    *model.Socket
	id       string
	listener []*listener
	wild     []int // how many labels follow the asterisks of listeners
	hostWild []int // and of their hosts
	named    bool  // some listener has a hostname
	mixed    bool  // some listeners are not for HTTP
}

// listener is one of a socket, with its line in the list of certificates.
type listener struct {
	model *model.Listener
	id    string
	lines []string
}

// planner makes a plan.
type planner struct {
	table   *model.Table
	slots   *slots
	before  *memos // of the table before
	memos   map[*model.Host]*memo
	making  *memo
	missing bool // a backend that only a reload can bring
	out     *plan
}

// makePlan is a pure function of the table and of the backends that there are.
func makePlan(table *model.Table, s *slots, before *memos) (out *plan, missing bool, after *memos) {
	p := &planner{table: table, slots: s, before: before, memos: map[*model.Host]*memo{}, making: &memo{}, out: &plan{
		entries: map[string]map[string]string{}, programs: map[string]string{}, backends: map[int]map[string]server{}, owners: map[int]need{},
		pems: map[string]string{}, kept: map[string]string{},
	}}
	seen := map[netip.AddrPort]bool{}
	for _, m := range table.Sockets {
		if m.Bind.IsValid() && !seen[m.Bind] {
			seen[m.Bind] = true
			p.socket(m)
		}
	}
	slices.SortFunc(p.out.sockets, func(a, b *socket) int { return cmp.Compare(a.id, b.id) })
	return p.out, p.missing, &memos{p.memos, table.Pools, p.out}
}

// challenges writes what certificate authorities look for at a socket.
func (p *planner) challenges(s *socket) {
	entries, c := p.entries(s.id+challenges), p.table.Challenges
	if c == nil {
		return
	}
	for token, text := range c.Tokens {
		if isPlain(token) && isPlain(text) && text != "" && c.Are(token, s.model.Name) {
			entries[model.ChallengePath+token] = text
		}
	}
}

// challenges is what the names of their maps end with.
const challenges = "a.map"

// The values of maps that are no backends with endpoints.
const (
	unknown = "e500"
	invalid = "e502"
)

// misdirected is the value of a listener whose connections are served no more: their
// clients would have to show another certificate. No listener's name begins so.
const misdirected = "m"

// slot returns the name of the backend for a pool that is asked in one way.
func (p *planner) slot(pool string, k kind) string {
	name := p.backendOf(pool, k)
	p.making.slots = append(p.making.slots, slotted{pool, k, name})
	return name
}

func (p *planner) backendOf(pool string, k kind) string {
	m := p.table.Pools[pool]
	switch {
	case m == nil:
		return unknown
	case !k.raw && (m.Invalid != "" || LackingPool(m) != ""):
		return invalid
	}
	if k.algorithm == model.RoundRobin {
		k.algorithm = m.Algorithm
	}
	k.private = m.Proxy != model.ProxyNone
	number, missing := p.slots.get(need{pool, k})
	p.missing = p.missing || missing
	p.out.owners[number] = need{pool, k}
	switch known := p.out.backends[number]; {
	case known != nil:
	case m.TLS == nil && p.before.pools[pool] == m && p.before.plan.owners[number] == need{pool, k}: // TLS has files besides
		p.out.backends[number] = p.before.plan.backends[number]
	default:
		p.out.backends[number] = p.servers(m, k)
	}
	return p.slots.name(number)
}

func (p *planner) socket(m *model.Socket) {
	s := &socket{model: m, id: "s" + strconv.FormatUint(uint64(hash32(m.Bind.String())), 36)}
	p.out.sockets = append(p.out.sockets, s)
	p.challenges(s)
	own := map[string]string{}
	for i, l := range m.Listeners {
		one := &listener{model: l, id: listenerID(l)}
		s.listener = append(s.listener, one)
		s.named = s.named || l.Hostname != ""
		s.mixed = s.mixed || l.Mode != model.HTTP
		s.wild = addDepth(s.wild, l.Hostname)
		if key, ok := hostKey(l.Hostname); ok && own[key] == "" {
			own[key] = one.id
		}
		p.certificates(s, one, i)
		p.hosts(s, one)
	}
	p.out.entries[s.id+"l.map"] = own
	slices.Sort(s.wild)
	slices.Sort(s.hostWild)
	slices.Reverse(s.wild)
	slices.Reverse(s.hostWild)
}

// listenerID names a listener and how its connections are treated: a for HTTP, c
// for HTTP with certificates of clients, t and p for bytes.
func listenerID(l *model.Listener) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(l.Name + "\x00" + l.Hostname))
	prefix := "a"
	switch {
	case l.Mode == model.Terminate:
		prefix = "t"
	case l.Mode == model.Passthrough:
		prefix = "p"
	case l.Clients != nil && !l.Clients.Optional:
		prefix = "c"
	}
	return prefix + strconv.FormatUint(h.Sum64(), 36)
}

// addDepth notes how many labels follow an asterisk.
func addDepth(list []int, hostname string) []int {
	suffix, wild := strings.CutPrefix(hostname, "*.")
	if depth := strings.Count(suffix, ".") + 1; wild && !slices.Contains(list, depth) {
		return append(list, depth)
	}
	return list
}

// hostKey is a hostname as maps have it: "*" for any. One that no request can
// have is in no map.
func hostKey(hostname string) (string, bool) {
	if hostname == "" {
		return "*", true
	}
	return hostname, isPlain(hostname) && !strings.Contains(hostname, "|")
}

// isPlain reports whether a text can be in a request line, and so in a map.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// certificates puts a listener's into a list: by server names.
func (p *planner) certificates(s *socket, l *listener, index int) {
	if !s.model.TLS || l.model.Mode == model.Passthrough {
		return
	}
	var options []string
	if l.model.Mode == model.HTTP {
		options = append(options, "alpn h2,http/1.1")
	}
	if v := l.model.Clients; v != nil && !v.Optional {
		options = append(options, "verify required ca-file "+p.file("clients", pemOfAll(v.Authorities)))
	}
	if len(options) > 0 {
		options = []string{"[" + strings.Join(options, " ") + "]"}
	}
	for i, c := range l.model.Certificates {
		text, err := pemOf(c)
		if err != nil {
			continue
		}
		file := fmt.Sprintf("%s%s%d.pem", s.id, l.id, i)
		p.out.pems[file] = text
		names := serverNames(l.model, c)
		if len(names) == 0 && l.model.Hostname != "" {
			continue
		}
		l.lines = append(l.lines, strings.Join(slices.Concat([]string{file}, options, names), " "))
	}
}

// serverNames are those for which a certificate is shown: the listener's, and those
// of the certificate that are among them, since an asterisk is one label to haproxy.
func serverNames(l *model.Listener, c *tls.Certificate) []string {
	var names []string
	if l.Hostname != "" && isHostname(strings.TrimPrefix(l.Hostname, "*")) {
		names = append(names, l.Hostname)
	}
	leaf := c.Leaf
	if leaf == nil && len(c.Certificate) > 0 {
		leaf, _ = x509.ParseCertificate(c.Certificate[0]) // without, it has no names
	}
	if leaf != nil {
		for _, n := range leaf.DNSNames {
			n = strings.ToLower(n)
			if isHostname(strings.TrimPrefix(n, "*")) && model.Covers(l.Hostname, n) && !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}

// systemAuthorities stands for those of the machine.
const systemAuthorities = "system"

// file keeps what changes with the configuration only, and returns its name.
func (p *planner) file(prefix, text string) string {
	sum := sha256.Sum256([]byte(text))
	name := prefix + hex.EncodeToString(sum[:8]) + ".pem"
	p.out.kept[name] = text
	return name
}

// authorities are those of endpoints.
func (p *planner) authorities(t *model.BackendTLS) string {
	if t.Roots == nil {
		p.out.kept[systemAuthorities] = ""
		return "@system-ca"
	}
	return p.file("ca", pemOfAll(t.Authorities))
}

func (p *planner) ownCertificate(c *tls.Certificate) string {
	text, err := pemOf(c)
	if err != nil {
		return p.file("own", "")
	}
	return p.file("own", text)
}

func pemOfAll(list []*x509.Certificate) string {
	var b bytes.Buffer
	for _, c := range list {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a buffer takes all
	}
	return b.String()
}

func pemOf(c *tls.Certificate) (string, error) {
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return "", fmt.Errorf("write private key: %w", err)
	}
	var b bytes.Buffer
	for _, der := range c.Certificate {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: der}) // a buffer takes all
	}
	_ = pem.Encode(&b, &pem.Block{Type: "PRIVATE KEY", Bytes: key}) // as above
	return b.String(), nil
}

func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
