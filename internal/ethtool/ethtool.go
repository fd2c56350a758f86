// Package ethtool asks and tells drivers of interfaces what they do by themselves, as ethtool
// -k and -K do.
package ethtool

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/ethtool.h.
const (
	getFlags       = 0x25
	setTxChecksums = 0x17
	setGRO         = 0x2c
	flagRxVLAN     = 1 << 8
)

// StripsVLANTags reports whether an interface takes VLAN tags off frames that come in.
func StripsVLANTags(name string) (bool, error) {
	flags, err := ask(name, getFlags, 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	return flags&flagRxVLAN != 0, err
}

// SetTxChecksums says whether an interface computes the checksums of what it sends.
func SetTxChecksums(name string, on bool) error {
	_, err := ask(name, setTxChecksums, number(on))
	return err
}

// SetGRO says whether an interface puts segments together that come in (GRO).
func SetGRO(name string, on bool) error {
	_, err := ask(name, setGRO, number(on))
	return err
}

func number(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

// ask gives a command to an interface of the network namespace that the calling thread is in.
func ask(name string, command, data uint32) (uint32, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open socket: %w", err)
	}
	value := struct{ command, data uint32 }{command, data}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if err := unix.Close(s); err != nil {
		return 0, fmt.Errorf("close socket: %w", err)
	}
	if errno != 0 {
		return 0, fmt.Errorf("ask the driver of interface %s: %w", name, errno)
	}
	return value.data, nil
}
