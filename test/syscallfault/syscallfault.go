// Package syscallfault has system calls of this process fail, as the kernel may have them
// fail. It listens to a seccomp filter of its own (seccomp_unotify(2), Linux 5.7), which
// stays until the process ends: tests begin a process for it.
package syscallfault

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Injector decides on each system call of some numbers.
type Injector struct {
	listener int
	decide   atomic.Pointer[func() unix.Errno]
	kernel   atomic.Pointer[func(Call) (errno unix.Errno, settled bool)]
}

// Call is struct seccomp_data of linux/seccomp.h: a call as it was made.
type Call struct {
	Number int32
	_      uint32
	_      uint64
	Args   [6]uint64
}

// Of linux/seccomp.h.
const (
	setModeFilter  = 1
	flagTSync      = 1 << 0
	flagListener   = 1 << 3
	flagTSyncESRCH = 1 << 4
	returnAllow    = 0x7fff0000
	returnNotify   = 0x7fc00000
	flagContinue   = 1
	receive        = 0xc0502100
	respond        = 0xc0182101
)

// notification is struct seccomp_notif, and response struct seccomp_notif_resp.
type notification struct {
	id         uint64
	pid, flags uint32
	call       Call
}

type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// Install begins to listen to calls of some numbers, which go on as ever until Set.
func Install(numbers ...uint32) (*Injector, error) {
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the number
	for _, number := range numbers {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number, Jt: 0, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: returnNotify})
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: returnAllow})
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, flagTSync|flagListener|flagTSyncESRCH, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return nil, fmt.Errorf("install seccomp filter: %w", errno)
	}
	i := &Injector{listener: int(fd)}
	go i.listen()
	return i, nil
}

// Set has decide say with what error each call fails; 0 lets it go on. Calls come one
// at a time. nil lets all go on.
func (i *Injector) Set(decide func() unix.Errno) {
	if decide == nil {
		i.decide.Store(nil)
		return
	}
	i.decide.Store(&decide)
}

// Settle has answer settle the fate of calls before Set is asked, from now on: as
// another kernel would refuse them, or to let them go on whatever Set says.
func (i *Injector) Settle(answer func(Call) (errno unix.Errno, settled bool)) {
	i.kernel.Store(&answer)
}

// fate is with what a call fails.
func (i *Injector) fate(call Call) unix.Errno {
	if answer := i.kernel.Load(); answer != nil {
		if errno, settled := (*answer)(call); settled {
			return errno
		}
	}
	if decide := i.decide.Load(); decide != nil {
		return (*decide)()
	}
	return 0
}

func (i *Injector) listen() {
	for {
		var n notification
		if err := i.ioctl(receive, unsafe.Pointer(&n)); err != nil {
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) {
				continue // the caller was interrupted, and calls again
			}
			panic(fmt.Sprintf("listen to system calls: %v", err))
		}
		r := response{id: n.id, flags: flagContinue}
		if errno := i.fate(n.call); errno != 0 {
			r.errno, r.flags = -int32(errno), 0
		}
		if err := i.ioctl(respond, unsafe.Pointer(&r)); err != nil && !errors.Is(err, unix.ENOENT) {
			panic(fmt.Sprintf("answer a system call: %v", err))
		}
	}
}

func (i *Injector) ioctl(request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(i.listener), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
