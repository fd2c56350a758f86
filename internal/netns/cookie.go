package netns

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/cgroup"
)

// ErrNoCookie says that the kernel doesn't tell (before Linux 5.7).
var ErrNoCookie = errors.New("this kernel does not tell network namespaces' cookies")

// Cookie is the number that eBPF programs know the calling thread's namespace by.
// It is never used again.
func Cookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("identify network namespace: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if errors.Is(err, unix.ENOPROTOOPT) { // before Linux 5.14
		cookie, err = askProgram(fd)
	}
	if err != nil {
		return 0, fmt.Errorf("identify network namespace: %w", err)
	}
	return cookie, nil
}

// askProgram has a program at the process's own cgroup tell, which sees this UDP
// socket connect. That sends nothing.
func askProgram(socket int) (uint64, error) {
	if err := rlimit.RemoveMemlock(); err != nil { // it counts maps before Linux 5.11
		return 0, fmt.Errorf("raise the limit of locked memory: %w", err)
	}
	told, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return 0, fmt.Errorf("%w: make a map: %w", ErrNoCookie, err)
	}
	defer told.Close()
	// What no other process connects to. The last byte is below 128, since
	// programs compare with numbers that have a sign.
	to := &unix.SockaddrInet4{Addr: [4]byte{127, byte(rand.N(256)), byte(rand.N(256)), byte(1 + rand.N(126))}, Port: 1 + rand.N(1<<15)}
	program, err := ebpf.NewProgram(cookieProgram(told, to))
	if err != nil {
		return 0, fmt.Errorf("%w: load a program: %w", ErrNoCookie, err)
	}
	defer program.Close()
	dir, err := ownCgroup()
	if err != nil {
		return 0, err
	}
	attached, err := link.AttachCgroup(link.CgroupOptions{Path: dir, Attach: ebpf.AttachCGroupInet4Connect, Program: program})
	if err != nil {
		return 0, fmt.Errorf("attach program to cgroup %s: %w", dir, err)
	}
	// The program runs before the kernel looks for a route.
	if err := unix.Connect(socket, to); err != nil && !errors.Is(err, unix.ENETUNREACH) {
		return 0, errors.Join(err, attached.Close())
	}
	var cookie uint64
	if err := errors.Join(told.Lookup(uint32(0), &cookie), attached.Close()); err != nil {
		return 0, err
	}
	if cookie == 0 {
		return 0, fmt.Errorf("%w: the program at cgroup %s did not see the socket", ErrNoCookie, dir)
	}
	return cookie, nil
}

func ownCgroup() (string, error) {
	root, err := cgroup.Reach()
	if err != nil {
		return "", err
	}
	own, err := cgroup.Own()
	return filepath.Join(root, own), err
}

// cookieProgram writes the cookie into the map if somebody connects there, and
// lets everybody pass. The offsets are those of struct bpf_sock_addr (linux/bpf.h).
func cookieProgram(told *ebpf.Map, to *unix.SockaddrInet4) *ebpf.ProgramSpec {
	const userIP4, userPort = 4, 24
	addr := int32(to.Addr[0]) | int32(to.Addr[1])<<8 | int32(to.Addr[2])<<16 | int32(to.Addr[3])<<24
	port := int32(to.Port>>8 | to.Port&0xff<<8)
	return &ebpf.ProgramSpec{
		Type: ebpf.CGroupSockAddr, AttachType: ebpf.AttachCGroupInet4Connect, License: "Apache-2.0",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, userIP4, asm.Word),
			asm.JNE.Imm(asm.R2, addr, "pass"),
			asm.LoadMem(asm.R2, asm.R1, userPort, asm.Word),
			asm.JNE.Imm(asm.R2, port, "pass"),
			asm.FnGetNetnsCookie.Call(),
			asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
			asm.StoreImm(asm.RFP, -12, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, told.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -12),
			asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -8),
			asm.Mov.Imm(asm.R4, 0),
			asm.FnMapUpdateElem.Call(),
			asm.Mov.Imm(asm.R0, 1).WithSymbol("pass"),
			asm.Return(),
		},
	}
}
