package ipvs

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// Script is what a table puts into the kernel as input for the usual tools.
func Script(t *model.Table, options kernel.Options) (map[string]string, error) {
	t = model.Expand(t)
	r, err := render(t, options)
	if err != nil {
		return nil, err
	}
	files := map[string]string{
		"addresses.ip-batch": r.addressScript(),
		"ipset.restore":      r.setScript(),
		"ipvsadm.restore":    r.serverScript(),
	}
	for _, f := range iptables.Families() {
		in := &iptables.Input{}
		for _, table := range (ruleSet{f, t.Settings, r.options.MasqueradeMark}).tables() {
			table.restoreInput(in, &iptables.Table{Name: table.name})
		}
		files[f.Command()+".restore"] = string(in.Bytes())
	}
	return files, nil
}

func (r *rendering) addressScript() string {
	var b strings.Builder
	fmt.Fprintf(&b, "link add %s type dummy\n", Interface)
	for _, a := range slices.SortedFunc(maps.Keys(r.plan.bind), netip.Addr.Compare) {
		fmt.Fprintf(&b, "address add %s/%d dev %s\n", a, a.BitLen(), Interface)
	}
	return b.String()
}

func (r *rendering) setScript() string {
	var b strings.Builder
	for _, ipv6 := range []bool{false, true} {
		ids := allSets(ipv6)
		slices.SortFunc(ids, setID.compare)
		for _, id := range ids {
			fmt.Fprintln(&b, id.createText())
		}
		for _, id := range ids {
			for _, e := range elements(r.plan.puts[id]) {
				fmt.Fprintln(&b, strings.TrimRight("add "+id.name()+" "+e.Text(id.typ())+" "+e.Mark.Text(), " "))
			}
		}
	}
	return b.String()
}

// createText spells the making of a set as `ipset save` does.
func (id setID) createText() string {
	text := "create " + id.name() + " " + id.typ()
	if id.typ() == ipset.BitmapPort {
		return text + " range 0-65535"
	}
	family := "inet"
	if id.ipv6 {
		family = "inet6"
	}
	text += fmt.Sprintf(" family %s hashsize 1024 maxelem %d", family, ipset.MaxElements)
	if setKinds[id.kind].marks {
		text += " counters skbinfo"
	}
	return text
}

// serverScript spells virtual servers as `ipvsadm -Sn` does.
func (r *rendering) serverScript() string {
	var b strings.Builder
	for _, id := range slices.SortedFunc(maps.Keys(r.plan.servers), lvs.ServerID.Compare) {
		sp := r.plan.servers[id]
		s := r.choose.service(id, sp.pool, len(sp.pool.Draining) > 0)
		fmt.Fprintf(&b, "-A %s -s %s", serverOption(id), s.Scheduler)
		if s.Flags&lvs.FlagPersistent != 0 {
			fmt.Fprintf(&b, " -p %d", s.Timeout)
		}
		if s.Flags&lvs.FlagFallback != 0 {
			fmt.Fprintf(&b, " -b flag-1")
		}
		if s.Flags&lvs.FlagPort != 0 {
			fmt.Fprintf(&b, " -b flag-2")
		}
		fmt.Fprintln(&b)
		for _, d := range sp.DestinationChanges.Add {
			fmt.Fprintf(&b, "-a %s -r %s -m -w %d\n", serverOption(id), d.Addr, d.Weight)
		}
	}
	return b.String()
}

// option names the server on ipvsadm's command line.
func serverOption(id lvs.ServerID) string {
	if id.Mark != 0 {
		text := fmt.Sprintf("-f %d", id.Mark)
		if id.IPv6 {
			text += " -6"
		}
		return text
	}
	flag := map[model.Protocol]string{model.TCP: "-t", model.UDP: "-u", model.SCTP: "--sctp-service"}[id.Key.Proto]
	return fmt.Sprintf("%s %s", flag, netip.AddrPortFrom(id.Key.Addr, id.Key.Port))
}
