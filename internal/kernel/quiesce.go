package kernel

import (
	"time"

	"golang.org/x/sys/unix"
)

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL (linux/membarrier.h).
const membarrierGlobal = 1

// unsureQuiet is long enough for a packet's way through netfilter where the
// kernel can't be asked to wait for it.
const unsureQuiet = 50 * time.Millisecond

// Quiesce returns when every packet has left netfilter that was in it at the time of
// the call. Packets pass all hooks from PREROUTING or OUTPUT to POSTROUTING
// within one RCU read-side section, and membarrier(2) waits for all of those
// (kernel/sched/membarrier.c: synchronize_rcu). So what packets met on their way until
// now may be taken away.
func Quiesce() {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0)
	if errno != 0 { // forbidden by seccomp, or a kernel with nohz_full
		time.Sleep(unsureQuiet)
	}
}
