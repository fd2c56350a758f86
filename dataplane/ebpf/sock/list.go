package sock

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/internal/netns"
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
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for proto, list := range map[model.Protocol]func(uint8) ([]*netlink.Socket, error){model.UDP: netlink.SocketDiagUDP, model.TCP: netlink.SocketDiagTCP} {
			found, err := list(family)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, fs.ErrNotExist) {
				continue // a kernel without
			}
			if err != nil {
				return fmt.Errorf("list sockets: %w", err)
			}
			for _, s := range found {
				cookie := uint64(s.ID.Cookie[1])<<32 | uint64(s.ID.Cookie[0])
				h, known := sockets[cookie]
				if !known {
					continue
				}
				delete(sockets, cookie)
				const synSent = 2
				tell(flow.Event{
					Kind: flow.Open, Time: time.Now(), Proto: proto, Client: addrPort(s.ID.Source, s.ID.SourcePort),
					Frontend: netip.AddrPortFrom(h.front.Addr, h.front.Port), Backend: h.backend, Replied: proto == model.TCP && s.State != synSent,
				})
			}
		}
	}
	return nil
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
