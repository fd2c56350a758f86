package tcfilter

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// BootTime is the clock that programs read: bpf_ktime_get_boot_ns (linux/bpf.h).
func BootTime() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, fmt.Errorf("read clock: %w", err)
	}
	return time.Duration(now.Nano()), nil
}

// NetworkOrder changes a port from this machine's byte order to that of packets, which
// programs compare with, and back.
func NetworkOrder(port uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], port)
	return binary.NativeEndian.Uint16(b[:])
}
