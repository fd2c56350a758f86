package haproxy

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// kind is what of a backend can't be changed while haproxy runs.
type kind struct {
	stream    bool // bytes, not requests
	raw       bool // TLS is the client's own
	algorithm model.Algorithm
	private   bool // connections are one client's
	sticky    bool // by cookie
	timed     bool // tries have a timeout
	connect   time.Duration
	attempts  int    // that the rule asks for; -1 if it doesn't
	codes     string // after which others are made
	broken    bool   // and after connections that fail
	late      bool   // and after an endpoint that takes too long
	harmless  bool   // only for requests that do no harm twice
}

// backend is the name of one of a kind: r and a number where a rule says when
// requests are sent again, and b where that is done if it does no harm.
func (k *kind) backend(number int) string {
	if k.attempts < 0 || k.harmless {
		return "b" + strconv.Itoa(number)
	}
	return "r" + strconv.Itoa(number)
}

// name is that of a backend.
func (s *slots) name(number int) string { return s.kinds[number].backend(number) }

// kindOf is that for requests; what the pool adds is added by slot.
func kindOf(a *model.Action) kind {
	k := kind{connect: a.ConnectTimeout, timed: a.BackendTimeout > 0 || a.ReadTimeout > 0, attempts: -1}
	if f := a.Affinity; f != nil {
		k.sticky = !f.ByClient
		if f.ByClient {
			k.algorithm = model.Source
		}
	}
	if r := a.Retry; r != nil {
		codes := slices.Clone(r.Codes)
		slices.Sort(codes)
		for _, c := range slices.Compact(codes) {
			k.codes += " " + strconv.Itoa(c)
		}
		k.attempts, k.late, k.harmless = r.Attempts, r.Late, r.Idempotent
		k.broken = r.Connection && r.Idempotent // haproxy doesn't tell requests apart by what they do twice
	}
	return k
}

// need is a pool that is asked in one way.
type need struct {
	pool string
	kind kind
}

// slots are the backends that haproxy has. Backends can't be added while it runs,
// so there are some to spare.
type slots struct {
	kinds []kind // by number
	owner []need // by number; the pool is "" if nobody has it
	byKey map[need]int
}

// spare is how many backends of a kind there are to spare.
func spare(used int) int { return max(8, used/8) }

// get returns the number of a need's backend; missing if there is none to be had
// without a reload.
func (s *slots) get(n need) (number int, missing bool) {
	if i, known := s.byKey[n]; known {
		return i, false
	}
	if s.byKey == nil {
		s.byKey = map[need]int{}
	}
	for i, k := range s.kinds {
		if k == n.kind && s.owner[i].pool == "" {
			s.owner[i], s.byKey[n] = n, i
			return i, false
		}
	}
	s.kinds, s.owner = append(s.kinds, n.kind), append(s.owner, n)
	s.byKey[n] = len(s.kinds) - 1
	return len(s.kinds) - 1, true
}

// release frees a backend that has no servers any more.
func (s *slots) release(number int) {
	delete(s.byKey, s.owner[number])
	s.owner[number] = need{}
}

// fill adds backends to spare, of all kinds there are.
func (s *slots) fill() {
	used, free := map[kind]int{{attempts: -1}: 0}, map[kind]int{}
	for i, k := range s.kinds {
		if s.owner[i].pool == "" {
			free[k]++
		} else {
			used[k]++
		}
	}
	var kinds []kind
	for k := range used {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b kind) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, k := range kinds {
		for range spare(used[k]) - free[k] {
			s.kinds, s.owner = append(s.kinds, k), append(s.owner, need{})
		}
	}
}

// server is an endpoint as a backend has it.
type server struct {
	address   string
	weight    int
	arguments string
}

// line is the server as a configuration and a command have it.
func (s *server) line(name string) string {
	return fmt.Sprintf("%s %s weight %d%s", name, s.address, s.weight, s.arguments)
}

// servers are those of a pool. Their names tell no address.
func (p *planner) servers(pool *model.Pool, k kind) map[string]server {
	common := p.arguments(pool, k)
	suffix := ""
	if common != "" {
		h := fnv.New32a()
		_, _ = h.Write([]byte(common))
		suffix = "_" + strconv.FormatUint(uint64(h.Sum32()), 36)
	}
	highest := 1
	for _, e := range pool.Endpoints {
		highest = max(highest, e.Weight)
	}
	out := make(map[string]server, len(pool.Endpoints))
	ids := map[uint32]bool{}
	for _, e := range pool.Endpoints {
		family := "ipv4"
		if e.Addr.Addr().Is6() {
			family = "ipv6"
		}
		id, arguments := endpointID(e.Addr.String()), common
		if k.algorithm == model.Source { // the number is what decides
			n := hash32(id) & 0x3fffffff
			for ; n == 0 || ids[n]; n++ {
			}
			ids[n] = true
			arguments += fmt.Sprintf(" id %d", n)
		}
		weight := max(e.Weight, 1)
		if highest > 256 {
			weight = max(weight*256/highest, 1)
		}
		out[id+suffix] = server{family + "@" + e.Addr.String(), weight, arguments}
	}
	return out
}

// arguments are how endpoints of a pool are spoken to.
func (p *planner) arguments(pool *model.Pool, k kind) string {
	var out strings.Builder
	t := pool.TLS
	if k.raw {
		t = nil
	}
	if t != nil {
		if t.Insecure {
			out.WriteString(" ssl verify none")
		} else {
			name := nameOf(t)
			fmt.Fprintf(&out, " ssl verify required ca-file %s sni str(%s) verifyhost %s", p.authorities(t), name, name)
		}
		if t.Certificate != nil {
			fmt.Fprintf(&out, " crt %s", p.ownCertificate(t.Certificate))
		}
	}
	if !k.stream && pool.Proxy == model.ProxyNone {
		switch {
		case t != nil && pool.Protocol == model.HTTP2:
			out.WriteString(" alpn h2,http/1.1 ws h1")
		case pool.Protocol == model.H2C:
			out.WriteString(" proto h2")
		}
	}
	switch pool.Proxy {
	case model.ProxyV1:
		out.WriteString(" send-proxy")
	case model.ProxyV2:
		out.WriteString(" send-proxy-v2")
	}
	return out.String()
}

// endpointID names an endpoint in a cookie without telling its address, as the
// native engine does, so that cookies hold when engines change.
func endpointID(address string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(address))
	return strconv.FormatUint(h.Sum64(), 36)
}

func hash32(text string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))
	return h.Sum32()
}
