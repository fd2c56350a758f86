package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Kubernetes' own times: a leader that dies is replaced after 15 s, one that
// ends in order within two.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// Lease names the object that decides which of several processes runs the
// controllers.
type Lease struct {
	// Namespace and Name of the Lease (coordination.k8s.io/v1). The namespace
	// must exist; until it does, nobody leads.
	Namespace, Name string
	// Identity tells this process from the others.
	Identity string
}

func (l *Lease) validate() error {
	for field, value := range map[string]string{"namespace": l.Namespace, "name": l.Name} {
		if problems := validation.NameIsDNSSubdomain(value, false); len(problems) > 0 {
			return fmt.Errorf("lease %s %q: %s", field, value, problems[0])
		}
	}
	if l.Identity == "" {
		return errors.New("lease identity must not be empty")
	}
	return nil
}

// Lead calls work whenever this process holds the lease, with a context that
// ends when it no longer does, until ctx is done or work fails.
func (l *Lease) Lead(ctx context.Context, client kubernetes.Interface, work func(context.Context) error) error {
	if err := l.validate(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := l.leadOnce(ctx, client, work); err != nil {
			return err
		}
	}
	return nil
}

// leadOnce returns when the lease is lost and work has ended. When ctx is done,
// the lease is held until work has ended: nobody else begins before.
func (l *Lease) leadOnce(ctx context.Context, client kubernetes.Interface, work func(context.Context) error) error {
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	started, ended := make(chan struct{}), make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.Identity},
		},
		Name:            l.Name,
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				close(started)
				working, cancel := context.WithCancel(leading)
				defer cancel()
				defer context.AfterFunc(ctx, cancel)()
				ended <- work(working)
				release()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("make leader elector: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		select {
		case <-started: // then the end of work releases it
		default:
			release()
		}
	})()
	elector.Run(electing)
	select {
	case <-started:
		return <-ended
	default:
		return nil
	}
}
