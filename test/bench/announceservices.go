package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	newServices    = 50                     // how many are made, one after the other
	servicePause   = 500 * time.Millisecond // what went before is over
	serviceTimeout = 20 * time.Second
)

// measureNewServices makes Services, each with an address of its own, and asks at
// that address from the moment at which the first write is sent.
func measureNewServices(ctx context.Context, l *announceLab, e event) (string, error) {
	var all []time.Duration
	for n := 1; n <= newServices; n++ {
		took, err := l.newService(ctx, n)
		if err != nil {
			return "", err
		}
		all = append(all, took)
	}
	slices.Sort(all)
	return fmt.Sprintf("%sp50 %s, p90 %s, p99 %s (%d Services)", verdict(percentile(all, 99) <= e.limit),
		milliseconds(percentile(all, 50)), milliseconds(percentile(all, 90)), milliseconds(percentile(all, 99)), len(all)), nil
}

// newService makes one and returns how soon after its creation was sent a datagram
// of the client's is answered.
func (l *announceLab) newService(ctx context.Context, n int) (took time.Duration, err error) {
	name, to := fmt.Sprintf("new%d", n), netip.AddrPortFrom(l.address(n), portOfService)
	pause(ctx, servicePause)
	flow, err := startProbe(l.hosts["client"], to)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, flow.close()) }()
	began := time.Now()
	if err := l.createService(ctx, name, to.Addr()); err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, l.api.CoreV1().Services("default").Delete(ctx, name, metav1.DeleteOptions{}))
	}()
	err = poll(ctx, serviceTimeout, time.Millisecond, func() error {
		at, ok := flow.firstAnswer()
		if !ok {
			return fmt.Errorf("no answer from %s", to)
		}
		took = at.Sub(began)
		return nil
	})
	return took, err
}
