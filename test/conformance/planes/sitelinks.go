package planes

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab/topology"
)

// Interfaces that the program ip can't set up to the end.

// team makes "HOST INTERFACE MODE", a team without ports, as teamd does (linux/if_team.h).
func (s *Topology) team(args []string) error {
	const (
		setOptions                                       = 1
		teamIndex, optionList                            = 1, 2
		option                                           = 1
		optionName, optionType, optionData, isStringType = 1, 3, 4, 5
	)
	on, err := s.siteHost(args[0])
	if err != nil {
		return err
	}
	return on.Do(func() error {
		l := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: args[1]}, LinkType: "team"}
		if err := netlink.LinkAdd(l); err != nil {
			return fmt.Errorf("add team: %w", err)
		}
		made, err := netlink.LinkByName(args[1])
		if err != nil {
			return err
		}
		list := nl.NewRtAttr(optionList|unix.NLA_F_NESTED, nil)
		one := list.AddRtAttr(option|unix.NLA_F_NESTED, nil)
		one.AddRtAttr(optionName, nl.ZeroTerminated("mode"))
		one.AddRtAttr(optionType, nl.Uint8Attr(isStringType))
		one.AddRtAttr(optionData, nl.ZeroTerminated(args[2]))
		err = generic("team", setOptions, nl.NewRtAttr(teamIndex, nl.Uint32Attr(uint32(made.Attrs().Index))), list)
		if errors.Is(err, unix.ESRCH) {
			return nil // it is done, and nobody listens to such changes
		}
		return err
	})
}

// wireGuard makes "INTERFACE HOST HOST", a tunnel that takes all packets (linux/wireguard.h).
func (s *Topology) wireGuard(args []string) error {
	var ends [2]struct {
		host *topology.Host
		key  *ecdh.PrivateKey
	}
	for i, name := range args[1:] {
		var err error
		if ends[i].host, err = s.siteHost(name); err != nil {
			return err
		}
		if ends[i].key, err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
			return err
		}
	}
	for i, end := range ends {
		other := ends[1-i]
		to := other.host.IPv4().As4()
		err := end.host.Do(func() error {
			if err := netlink.LinkAdd(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: args[0]}, LinkType: "wireguard"}); err != nil {
				return fmt.Errorf("add interface: %w", err)
			}
			return tunnelTo(args[0], end.key.Bytes(), other.key.PublicKey().Bytes(), to)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func tunnelTo(name string, key, peerKey []byte, to [4]byte) error {
	const (
		setDevice                                = 1
		deviceName, privateKey, listenPort, list = 2, 3, 6, 8
		publicKey, endpoint, allowed             = 1, 4, 9
		family, address, mask                    = 1, 2, 3
		port                                     = 51820
	)
	peers := nl.NewRtAttr(list|unix.NLA_F_NESTED, nil)
	peer := peers.AddRtAttr(0|unix.NLA_F_NESTED, nil)
	peer.AddRtAttr(publicKey, peerKey)
	at := make([]byte, unix.SizeofSockaddrInet4)
	binary.NativeEndian.PutUint16(at, unix.AF_INET)
	binary.BigEndian.PutUint16(at[2:], port)
	copy(at[4:], to[:])
	peer.AddRtAttr(endpoint, at)
	all := peer.AddRtAttr(allowed|unix.NLA_F_NESTED, nil)
	for _, af := range []struct {
		number uint16
		size   int
	}{{unix.AF_INET, 4}, {unix.AF_INET6, 16}} {
		one := all.AddRtAttr(0|unix.NLA_F_NESTED, nil)
		one.AddRtAttr(family, nl.Uint16Attr(af.number))
		one.AddRtAttr(address, make([]byte, af.size))
		one.AddRtAttr(mask, nl.Uint8Attr(0))
	}
	return generic("wireguard", setDevice,
		nl.NewRtAttr(deviceName, nl.ZeroTerminated(name)), nl.NewRtAttr(privateKey, key), nl.NewRtAttr(listenPort, nl.Uint16Attr(port)), peers)
}

// generic sends a message to a family of generic netlink.
func generic(family string, command uint8, attributes ...*nl.RtAttr) error {
	f, err := netlink.GenlFamilyGet(family)
	if err != nil {
		return fmt.Errorf("find netlink family %s: %w", family, err)
	}
	request := nl.NewNetlinkRequest(int(f.ID), unix.NLM_F_ACK)
	request.AddData(&nl.Genlmsg{Command: command, Version: 1})
	for _, a := range attributes {
		request.AddData(a)
	}
	if _, err := request.Execute(unix.NETLINK_GENERIC, 0); err != nil {
		return fmt.Errorf("set up by netlink family %s: %w", family, err)
	}
	return nil
}
