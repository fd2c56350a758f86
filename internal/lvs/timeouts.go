package lvs

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	mobyipvs "github.com/moby/ipvs"
)

// timeoutChange is what a timeout was and what it was made.
type timeoutChange struct{ Was, Set time.Duration }

// timeout is one of IPVS's three (IPVS_CMD_SET_CONFIG, linux/ip_vs.h), as it is
// kept, read and written.
type timeout struct {
	kept *(*timeoutChange)
	now  *time.Duration
	set  *time.Duration
	want time.Duration // 0 is as it was found
	// floor leaves a timeout that is longer.
	floor bool
}

func (k *SettingsKeeper) timeouts(old *kept, now, set *mobyipvs.Config) ([]timeout, error) {
	tcp := timeout{&old.TCP, &now.TimeoutTCP, &set.TimeoutTCP, k.options.TCP, false}
	if tcp.want == 0 {
		// Idle TCP connections live as long as conntrack lets them: IPVS alone
		// would forget them after 15 minutes.
		var err error
		if tcp.want, err = trackedTCP(); err != nil {
			return nil, err
		}
		tcp.floor = true
	}
	return []timeout{
		tcp,
		{&old.TCPFin, &now.TimeoutTCPFin, &set.TimeoutTCPFin, k.options.TCPFin, false},
		{&old.UDP, &now.TimeoutUDP, &set.TimeoutUDP, k.options.UDP, false},
	}, nil
}

// SetTimeouts has IPVS forget idle connections when it is told to. A timeout that
// isn't asked for any more is put back.
func (k *SettingsKeeper) SetTimeouts() error {
	now, err := k.Balancer.GetConfig()
	if err != nil {
		return fmt.Errorf("read IPVS timeouts: %w", err)
	}
	var set mobyipvs.Config // 0 leaves a timeout
	err = k.remember(func(old *kept) error {
		list, err := k.timeouts(old, now, &set)
		for _, t := range list {
			t.decide()
		}
		return err
	})
	if err != nil || set == (mobyipvs.Config{}) {
		return err
	}
	if err := k.Balancer.SetConfig(&set); err != nil {
		return fmt.Errorf("set IPVS timeouts: %w", err)
	}
	return nil
}

func (t timeout) decide() {
	before := *t.kept
	switch {
	case t.want == 0 && before == nil, t.floor && *t.now >= t.want && (before == nil || before.Set != *t.now):
	case t.want == 0:
		if *t.now == before.Set {
			*t.set = before.Was
		}
		*t.kept = nil
	case *t.now == t.want:
	default:
		was := *t.now
		if before != nil {
			was = before.Was
		}
		*t.kept, *t.set = &timeoutChange{was, t.want}, t.want
	}
}

// restoreTimeouts puts back what was changed and nobody has changed since.
func (k *SettingsKeeper) restoreTimeouts(old *kept) error {
	if old.TCP == nil && old.TCPFin == nil && old.UDP == nil {
		return nil
	}
	now, err := k.Balancer.GetConfig()
	if err != nil {
		return fmt.Errorf("put IPVS timeouts back: %w", err)
	}
	var set mobyipvs.Config
	for _, t := range []timeout{
		{kept: &old.TCP, now: &now.TimeoutTCP, set: &set.TimeoutTCP},
		{kept: &old.TCPFin, now: &now.TimeoutTCPFin, set: &set.TimeoutTCPFin},
		{kept: &old.UDP, now: &now.TimeoutUDP, set: &set.TimeoutUDP},
	} {
		t.decide()
	}
	if set == (mobyipvs.Config{}) {
		return nil
	}
	if err := k.Balancer.SetConfig(&set); err != nil {
		return fmt.Errorf("put IPVS timeouts back: %w", err)
	}
	return nil
}

// trackedTCP is how long conntrack keeps idle TCP connections; 0 while it isn't
// loaded. It is with the first rule; the next comparison sees it.
func trackedTCP() (time.Duration, error) {
	text, err := ReadSysctl("net/netfilter/nf_conntrack_tcp_timeout_established")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read conntrack's timeout: %w", err)
	}
	seconds, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("read conntrack's timeout: %w", err)
	}
	return time.Duration(seconds) * time.Second, nil
}
