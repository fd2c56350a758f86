package userspace

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// duplicate duplicates a socket's descriptor. (os.File.Fd and the like would
// make the socket a blocking one for all who have it.)
func duplicate(c syscall.Conn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	duplicate := -1
	controlErr := raw.Control(func(fd uintptr) {
		duplicate, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	return duplicate, errors.Join(controlErr, err)
}

func closeAll(descriptors []int) {
	for _, fd := range descriptors {
		discard(unix.Close(fd))
	}
}

func sendDescriptors(conn *net.UnixConn, descriptors []int) error {
	for len(descriptors) > 0 {
		n := min(len(descriptors), descriptorsAtOnce)
		if _, _, err := conn.WriteMsgUnix([]byte{descriptorByte}, unix.UnixRights(descriptors[:n]...), nil); err != nil {
			return fmt.Errorf("send sockets: %w", err)
		}
		descriptors = descriptors[n:]
	}
	return nil
}

// descriptorByte goes along with descriptors; it tells them from the white
// space that may follow JSON.
const descriptorByte = 'd'
