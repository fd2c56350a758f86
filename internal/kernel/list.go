package kernel

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// interruptions is how often List tries again.
const interruptions = 20

// List calls a function that lists things over netlink, until the list is whole: the
// kernel says of one that changed meanwhile that it may not be (NLM_F_DUMP_INTR,
// linux/netlink.h).
func List[T any](list func() ([]T, error)) ([]T, error) {
	all, err := list()
	for tries := 0; errors.Is(err, netlink.ErrDumpInterrupted) && tries < interruptions; tries++ {
		all, err = list()
	}
	return all, err
}
