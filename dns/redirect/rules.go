package redirect

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tableName is our nftables table's; nobody else's is touched.
const tableName = "fairway-dns"

// The hooks are passed before connection tracking, and the stateless
// translation needs none: questions are many, short, and would only fill it.
// Sets hold the Service's addresses while their lease runs.
const (
	arriving  = "arriving"  // questions that come in
	asked     = "asked"     // those of them to port 53, whoever asks
	strangers = "strangers" // and of these those of who may not ask, which are dropped
	asking    = "asking"    // and those of this machine's processes, which then need another route
	answering = "answering" // answers, and what a process sends to renew the lease
)

var leases = map[bool]string{false: "leases4", true: "leases6"} // by whether it is of IPv6

// divert makes our table anew, in one transaction.
func (l *Lease) divert() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	conn.AddTable(table) // so that deleting it is no error
	conn.DelTable(table)
	conn.AddTable(table)
	for six, name := range leases {
		if err := conn.AddSet(leaseSet(table, name, six), nil); err != nil {
			return fmt.Errorf("make set %s: %w", name, err)
		}
	}
	l.rules = map[string]int{}
	fill := func(chain *nftables.Chain, rules [][]expr.Any) {
		chain.Table = table
		l.rules[chain.Name] = len(rules)
		conn.AddChain(chain)
		for _, r := range rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r})
		}
	}
	add := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, rules func(way) [][]expr.Any) {
		fill(&nftables.Chain{Name: name, Type: kind, Hooknum: hook, Priority: nftables.ChainPriorityRaw}, l.each(rules))
	}
	fill(&nftables.Chain{Name: strangers}, l.strangers())
	fill(&nftables.Chain{Name: asked}, append(l.guarded(), l.each(way.questions)...))
	fill(&nftables.Chain{Name: arriving, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw},
		append(toPort53(&expr.Verdict{Kind: expr.VerdictJump, Chain: asked}), l.each(func(w way) [][]expr.Any {
			return [][]expr.Any{w.renewal(&expr.Verdict{Kind: expr.VerdictDrop})}
		})...))
	add(asking, nftables.ChainTypeRoute, nftables.ChainHookOutput, way.questions)
	add(answering, nftables.ChainTypeFilter, nftables.ChainHookOutput, func(w way) [][]expr.Any {
		return append(w.answers(), w.renew(uint32(os.Geteuid())))
	})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("have questions answered on this node: %w", err)
	}
	return nil
}

// each are rules for each of the addresses.
func (l *Lease) each(rules func(way) [][]expr.Any) [][]expr.Any {
	var list [][]expr.Any
	for _, w := range l.ways {
		list = append(list, rules(w)...)
	}
	return list
}

func leaseSet(table *nftables.Table, name string, six bool) *nftables.Set {
	s := &nftables.Set{Table: table, Name: name, KeyType: nftables.TypeIPAddr, Dynamic: true, HasTimeout: true, Size: 64}
	if six {
		s.KeyType = nftables.TypeIP6Addr
	}
	return s
}

// End ends the lease at once.
func (l *Lease) End() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	for six, name := range leases {
		conn.FlushSet(leaseSet(table, name, six))
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("end the lease of DNS questions: %w", err)
	}
	return nil
}

func removeTable() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	conn.AddTable(table)
	conn.DelTable(table)
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("delete table %s: %w", tableName, err)
	}
	return nil
}

// questions leads questions to the local address while the lease runs, and
// leaves those untracked that have it already.
func (w way) questions() [][]expr.Any {
	var list [][]expr.Any
	for _, proto := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		leased := join(to(w.service), port(proto, destinationPort, 53), load(w.service, destination),
			[]expr.Any{&expr.Lookup{SourceRegister: 1, SetName: leases[w.service.Is6()]}},
			write(w.local, destination), []expr.Any{&expr.Notrack{}})
		list = append(list, leased, join(to(w.local), port(proto, destinationPort, 53), []expr.Any{&expr.Notrack{}}))
	}
	return list
}

// answers has them come from the Service's address, but for those to the local
// address: a client at that address asks there.
func (w way) answers() [][]expr.Any {
	var list [][]expr.Any
	for _, proto := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		from := join(at(w.local, source, expr.CmpOpEq), port(proto, sourcePort, 53))
		list = append(list,
			join(from, at(w.local, destination, expr.CmpOpNeq), write(w.service, source), []expr.Any{&expr.Notrack{}}),
			join(from, []expr.Any{&expr.Notrack{}}),
			join(to(w.local), port(proto, destinationPort, 53), []expr.Any{&expr.Notrack{}}))
	}
	return list
}

// renewal is what renews the lease; see [Lease.Renew].
func (w way) renewal(then ...expr.Any) []expr.Any {
	return join(to(w.local), at(w.local, source, expr.CmpOpEq), port(unix.IPPROTO_UDP, destinationPort, renewalPort), then)
}

// renew begins the lease anew, if it is a process of this user that asks for it.
func (w way) renew(user uint32) []expr.Any {
	return w.renewal(
		&expr.Meta{Key: expr.MetaKeySKUID, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(user)},
		&expr.Immediate{Register: 1, Data: w.service.AsSlice()},
		&expr.Dynset{SrcRegKey: 1, SetName: leases[w.service.Is6()], Operation: uint32(unix.NFT_DYNSET_OP_UPDATE), Timeout: Term},
		&expr.Notrack{},
	)
}

// field is where something stands in a packet's header.
type field int

const (
	source field = iota
	destination
)

const sourcePort, destinationPort = 0, 2

// place is the offset and length of an address in the network header.
func (f field) place(six bool) (offset, length uint32) {
	if six {
		return 8 + 16*uint32(f), 16
	}
	return 12 + 4*uint32(f), 4
}

// load reads an address of the family of a.
func load(a netip.Addr, f field) []expr.Any {
	offset, length := f.place(a.Is6())
	return []expr.Any{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}}
}

// at compares an address with a.
func at(a netip.Addr, f field, op expr.CmpOp) []expr.Any {
	return join(ofFamily(a), load(a, f), []expr.Any{&expr.Cmp{Op: op, Register: 1, Data: a.AsSlice()}})
}

func to(a netip.Addr) []expr.Any { return at(a, destination, expr.CmpOpEq) }

func port(proto byte, offset uint32, number uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(number)},
	}
}

// write puts an address into a packet, and corrects its checksums: that of the
// IPv4 header, which is at 10, and the transport's.
func write(a netip.Addr, f field) []expr.Any {
	offset, length := f.place(a.Is6())
	p := &expr.Payload{
		OperationType: expr.PayloadWrite, SourceRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length,
		CsumFlags: unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR,
	}
	if a.Is4() {
		p.CsumType, p.CsumOffset = expr.CsumTypeInet, 10
	}
	return []expr.Any{&expr.Immediate{Register: 1, Data: a.AsSlice()}, p}
}

func join(parts ...[]expr.Any) []expr.Any {
	var list []expr.Any
	for _, p := range parts {
		list = append(list, p...)
	}
	return list
}
