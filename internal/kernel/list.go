package kernel

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// interruptions is how often List tries again.
const interruptions = 20

// List calls a function that lists things over netlink, until the list is whole: the
// kernel says of one that changed meanwhile that it may not be (NLM_F_DUMP_INTR,
// linux/netlink.h). It says EBUSY of one on whose socket an earlier list hasn't ended, as
// when its answers were lost (ENOBUFS); what comes of that is read and passed over then.
func List[T any](list func() ([]T, error)) ([]T, error) {
	all, err := list()
	for tries := 0; (errors.Is(err, netlink.ErrDumpInterrupted) || errors.Is(err, unix.EBUSY)) && tries < interruptions; tries++ {
		all, err = list()
	}
	return all, err
}
