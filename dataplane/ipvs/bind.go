package ipvs

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/nlmsg"
)

// bind adds addresses to the interface. Processes of this node would then reach for
// them with the address itself as their source. For IPv4 that is mended by a local route
// with the source that they had before; IPv6 knows no way to replace such a route.
func (d *dummy) bind(list []netip.Addr) error {
	sources, err := d.sources(list)
	if err != nil {
		return err
	}
	var messages []*nl.NetlinkRequest
	var what []string
	for _, a := range list {
		messages, what = append(messages, d.newAddress(a)), append(what, fmt.Sprintf("add address %s to %s", a, Interface))
		if source := sources[a]; source.IsValid() {
			messages, what = append(messages, d.newLocalRoute(a, source)), append(what, fmt.Sprintf("set source for address %s of %s", a, Interface))
		}
	}
	failed, err := d.bulk.Do(messages, nil)
	if err != nil {
		return fmt.Errorf("add addresses to %s: %w", Interface, err)
	}
	var problems []error
	for i, cause := range failed {
		if messages[i].Type == unix.RTM_NEWADDR && errors.Is(cause, unix.EEXIST) {
			continue
		}
		problems = append(problems, fmt.Errorf("%s: %w", what[i], cause))
	}
	// Unknown addresses of the Service ranges are refused where packets are forwarded, so
	// that nothing may be sent on before the address is local.
	if err := kernel.AwaitLocal(d.handle, list); err != nil {
		problems = append(problems, fmt.Errorf("use addresses of %s: %w", Interface, err))
	}
	return errors.Join(problems...)
}

// sources are those with which this node reaches for IPv4 addresses; none where it
// doesn't, so that any source will do, or where it has the address already.
func (d *dummy) sources(list []netip.Addr) (map[netip.Addr]netip.Addr, error) {
	var messages []*nl.NetlinkRequest
	var of []netip.Addr
	for _, a := range list {
		if a.Is4() {
			req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
			req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET, Dst_len: 32}})
			req.AddData(nl.NewRtAttr(unix.RTA_DST, a.AsSlice()))
			messages, of = append(messages, req), append(of, a)
		}
	}
	sources := map[netip.Addr]netip.Addr{}
	_, err := d.bulk.Do(messages, func(i int, msg []byte) {
		if i < 0 || i >= len(of) || len(msg) < unix.SizeofRtMsg {
			return
		}
		for typ, value := range nlmsg.Attributes(msg[unix.SizeofRtMsg:]).All() {
			if source, ok := netip.AddrFromSlice(value); ok && typ == unix.RTA_PREFSRC && source != of[i] && !source.IsLoopback() {
				sources[of[i]] = source
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("look for routes to addresses of %s: %w", Interface, err)
	}
	return sources, nil
}

// forever is an address's lifetime (INFINITY_LIFE_TIME, linux/if_addr.h).
const forever = 0xffffffff

// newAddress adds one that the kernel never picks as a source by itself, for
// masquerading least of all: of scope host, or deprecated.
func (d *dummy) newAddress(a netip.Addr) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	header := unix.IfAddrmsg{Family: unix.AF_INET, Prefixlen: uint8(a.BitLen()), Scope: unix.RT_SCOPE_HOST, Index: uint32(d.index)}
	if a.Is6() {
		header.Family, header.Scope, header.Flags = unix.AF_INET6, unix.RT_SCOPE_UNIVERSE, unix.IFA_F_NODAD
	}
	req.AddData(&nl.IfAddrmsg{IfAddrmsg: header})
	req.AddData(nl.NewRtAttr(unix.IFA_LOCAL, a.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, a.AsSlice()))
	if a.Is6() {
		lifetimes := nl.IfaCacheInfo{IfaCacheinfo: unix.IfaCacheinfo{Valid: forever}} // preferred for no time at all
		req.AddData(nl.NewRtAttr(unix.IFA_CACHEINFO, lifetimes.Serialize()))
	}
	return req
}

// newLocalRoute puts a source into the route by which the kernel takes an address for
// its own.
func (d *dummy) newLocalRoute(a, source netip.Addr) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{
		Family: unix.AF_INET, Dst_len: uint8(a.BitLen()), Table: unix.RT_TABLE_LOCAL,
		Protocol: unix.RTPROT_KERNEL, Scope: unix.RT_SCOPE_HOST, Type: unix.RTN_LOCAL,
	}})
	req.AddData(nl.NewRtAttr(unix.RTA_DST, a.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_PREFSRC, source.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(d.index))))
	return req
}
