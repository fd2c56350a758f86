// Package handover passes listening sockets from a process to the one that takes
// its place, so that no connection is refused in between: not by a port that
// nobody listens on, and not by a queue that is thrown away.
//
// The process that serves has an [Offer] at a Unix socket. Its successor connects
// ([Connect]), gets the listeners once it is ready to serve ([Claim.Take]), and
// says so when it serves ([Claim.Serving]). Until then the first one goes on, and
// if the successor fails, nothing has happened. The Offer's own socket is handed
// over too. Both sides check that the other runs as the same user or as root.
//
//	handover.go  names, messages, who is at the other end
//	offer.go     the process that serves
//	claim.go     its successor
package handover

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// network keeps messages apart.
const network = "unixpacket"

const (
	// maxFiles of a message; the kernel takes 253.
	maxFiles = 100
	// maxMessage is the size of a message in bytes.
	maxMessage = 64 << 10
	// answerTimeout bounds how long an answer is waited for.
	answerTimeout = 30 * time.Second
)

// message is what the two say to each other.
type message struct {
	// Step is "hello" and "take" and "serving" of the successor; "welcome" and
	// "listeners" of the process that serves.
	Step string `json:"step"`
	// Names are those of the listeners that come with the message.
	Names []string `json:"names,omitempty"`
	More  bool     `json:"more,omitempty"` // listeners come
}

const (
	stepHello     = "hello"
	stepWelcome   = "welcome"
	stepTake      = "take"
	stepListeners = "listeners"
	stepServing   = "serving"
)

// own is the name of the Offer's own listener.
const own = "handover"

// send writes a message with files, which stay the caller's.
func send(c *net.UnixConn, m message, files []*os.File) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fd, err := number(f)
			if err != nil {
				return err
			}
			fds[i] = fd
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(text, rights, nil); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	return nil
}

// number is that of a file that stays open. File.Fd would have the listener block.
func number(f *os.File) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("find number of file: %w", err)
	}
	n := -1
	if err := raw.Control(func(fd uintptr) { n = int(fd) }); err != nil {
		return 0, fmt.Errorf("find number of file: %w", err)
	}
	return n, nil
}

// receive reads a message with its files, which are the caller's then.
func receive(c *net.UnixConn) (m message, files []*os.File, err error) {
	text, rights := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, nr, flags, _, err := c.ReadMsgUnix(text, rights)
	if err != nil {
		return m, nil, fmt.Errorf("receive message: %w", err)
	}
	if files, err = filesIn(rights[:nr]); err != nil {
		return m, nil, err
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeAll(files)
		return m, nil, fmt.Errorf("receive message: longer than %d bytes or %d files", maxMessage, maxFiles)
	}
	if err := json.Unmarshal(text[:n], &m); err != nil {
		closeAll(files)
		return m, nil, fmt.Errorf("read message: %w", err)
	}
	return m, files, nil
}

func filesIn(rights []byte) ([]*os.File, error) {
	if len(rights) == 0 {
		return nil, nil
	}
	parts, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, fmt.Errorf("read files of a message: %w", err)
	}
	var files []*os.File
	for i := range parts {
		fds, err := unix.ParseUnixRights(&parts[i])
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("read files of a message: %w", err)
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "listener"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written
	}
}

// checkPeer refuses other users.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("find the user at the other end: %w", err)
	}
	var peer *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { peer, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return fmt.Errorf("find the user at the other end: %w", err)
	}
	if credErr != nil {
		return fmt.Errorf("find the user at the other end: %w", credErr)
	}
	if uid := os.Geteuid(); int(peer.Uid) != uid && peer.Uid != 0 {
		return fmt.Errorf("the other end runs as user %d, this process as %d", peer.Uid, uid)
	}
	return nil
}
