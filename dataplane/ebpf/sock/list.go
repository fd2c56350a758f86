package sock

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/internal/sockdiag"
	"github.com/fairway-net/fairway/model"
)

// List tells of the sockets that were connected to frontends at the node whose pins are
// in a directory, as far as their network namespaces can be looked into.
func List(dir string, tell func(flow.Event)) error {
	m, err := maps.OpenResizable(dir, maps.SocketsMap)
	if err != nil || m == nil {
		return err
	}
	sockets := map[uint64]lbSocket{}
	err = eachSocket(m, func(cookie uint64, h lbSocket) { sockets[cookie] = h })
	if err := errors.Join(err, m.Close()); err != nil || len(sockets) == 0 {
		return err
	}
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, path := range links {
		name, err := os.Readlink(path)
		if err != nil || seen[name] || len(sockets) == 0 {
			continue
		}
		seen[name] = true
		ns, err := netns.OfPath(path)
		if err != nil {
			continue // it went meanwhile, or isn't ours to look into
		}
		err = ns.Do(func() error { return listHere(sockets, tell) })
		if err := errors.Join(err, ns.Close()); err != nil {
			return err
		}
	}
	return nil
}

// listHere tells of those of the sockets that are in the thread's namespace.
func listHere(sockets map[uint64]lbSocket, tell func(flow.Event)) error {
	const synSent = 2
	return sockdiag.Each(func(_ uint8, proto model.Protocol, cookie uint64, s *netlink.Socket) error {
		h, known := sockets[cookie]
		if !known {
			return nil
		}
		delete(sockets, cookie)
		tell(flow.Event{
			Kind: flow.Open, Time: time.Now(), Proto: proto, Client: addrPort(s.ID.Source, s.ID.SourcePort),
			Frontend: netip.AddrPortFrom(h.front.Addr, h.front.Port), Backend: h.backend, Replied: proto == model.TCP && s.State != synSent,
		})
		return nil
	})
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
