package kernel

import (
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestList(t *testing.T) {
	calls := 0
	interrupted := func(times int) func() ([]int, error) {
		calls = 0
		return func() ([]int, error) {
			if calls++; calls <= times {
				return []int{1}, netlink.ErrDumpInterrupted
			}
			return []int{1, 2}, nil
		}
	}
	if got, err := List(interrupted(3)); err != nil || !slices.Equal(got, []int{1, 2}) || calls != 4 {
		t.Errorf("interrupted three times: %v, %v after %d calls", got, err, calls)
	}
	if _, err := List(interrupted(1000)); !errors.Is(err, netlink.ErrDumpInterrupted) {
		t.Errorf("interrupted always: %v", err)
	}
	calls = 0
	if got, err := List(func() ([]int, error) {
		if calls++; calls == 1 {
			return nil, unix.EBUSY // an earlier list hasn't ended
		}
		return []int{1}, nil
	}); err != nil || !slices.Equal(got, []int{1}) {
		t.Errorf("after a list that was broken off: %v, %v", got, err)
	}
	other := errors.New("no")
	calls = 0
	if _, err := List(func() ([]int, error) { calls++; return nil, other }); !errors.Is(err, other) || calls != 1 {
		t.Errorf("another error: %v after %d calls", err, calls)
	}
}
