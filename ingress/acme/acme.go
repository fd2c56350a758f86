// Package acme obtains and renews certificates by ACME (RFC 8555) and keeps them in
// Secrets. It works in the controller, so that there is one issuer however many
// engines there are. What the certificate authority asks to see is published in a
// ConfigMap, from which every engine answers.
//
//	acme.go        which certificates, and when
//	issue.go       one certificate, from order to Secret
//	account.go     the account at the authority
//	challenges.go  what engines answer
package acme

import (
	"context"
	"crypto/x509"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	// LetsEncrypt and LetsEncryptStaging are directories of Let's Encrypt.
	LetsEncrypt        = "https://acme-v02.api.letsencrypt.org/directory"
	LetsEncryptStaging = "https://acme-staging-v02.api.letsencrypt.org/directory"
	// Label is on what belongs to this package. A Secret without it is never written.
	Label = "fairway.dev/acme"
	// Challenges is the ConfigMap from which engines answer.
	Challenges = "fairway-acme-challenges"
	// account is what the names of Secrets with accounts' keys begin with; a namespace follows.
	account = "fairway-acme-account"
)

// Certificate is one that somebody wants.
type Certificate struct {
	Secret types.NamespacedName
	Hosts  []string // sorted
	// Kind and Object are whose author is told.
	Kind   string
	Object types.NamespacedName
	// At are the Gateways to which each host leads, and where alone its challenges are answered.
	At map[string][]types.NamespacedName
}

// Options say where certificates come from. Core, Directory and Namespace are needed.
type Options struct {
	Core      kubernetes.Interface
	Directory string // of the authority
	Email     string // where the authority writes to; "" is none
	Namespace string // of the account and the challenges
	Roots     *x509.CertPool
	// Tell is told how an attempt ended; nil for one that gave a certificate.
	Tell func(Certificate, error)
	Log  *slog.Logger
	// Settle is how long engines have to learn of a challenge; two seconds if 0.
	Settle time.Duration
	// Again is when a first failure is followed by another attempt: a minute if 0.
	// Each further one has twice as long, up to a day's eighth.
	Again time.Duration
	// Types are the challenges that may be used; nil is http-01 and tls-alpn-01.
	Types []string
}

const (
	defaultSettle  = 2 * time.Second
	defaultAgain   = time.Minute
	longestAgain   = 3 * time.Hour
	lookAgain      = time.Hour // whether certificates are due
	attempt        = 5 * time.Minute
	attemptsAtOnce = 4
)

// Issuer obtains certificates.
type Issuer struct {
	options  Options
	accounts accounts
	wake     chan struct{}

	mu    sync.Mutex
	known map[types.NamespacedName]*state
}

// state is a certificate in the making or kept.
type state struct {
	Certificate
	busy     bool
	next     time.Time // to look at it
	failures int
	err      error // of the last attempt
}

// New returns an issuer that knows of no certificates.
func New(o Options) *Issuer {
	if o.Settle == 0 {
		o.Settle = defaultSettle
	}
	if o.Again == 0 {
		o.Again = defaultAgain
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Issuer{options: o, wake: make(chan struct{}, 1), known: map[types.NamespacedName]*state{}}
}

// Want says which certificates there should be. Those that are there already and
// aren't wanted any more stay in their Secrets, and are not renewed.
func (i *Issuer) Want(list []Certificate) {
	i.mu.Lock()
	defer i.mu.Unlock()
	wanted := map[types.NamespacedName]bool{}
	changed := false
	for _, c := range list {
		wanted[c.Secret] = true
		s := i.known[c.Secret]
		if s == nil || !slices.Equal(s.Hosts, c.Hosts) {
			s = &state{}
			i.known[c.Secret] = s
			changed = true
		}
		s.Certificate = c
	}
	maps.DeleteFunc(i.known, func(name types.NamespacedName, _ *state) bool { return !wanted[name] })
	if changed {
		i.signal()
	}
}

// Failure is why the last attempt at a Secret's certificate failed; nil if it didn't.
func (i *Issuer) Failure(secret types.NamespacedName) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.known[secret]; s != nil {
		return s.err
	}
	return nil
}

// Run works until ctx is done.
func (i *Issuer) Run(ctx context.Context) {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	slots := make(chan struct{}, attemptsAtOnce)
	for {
		due, wait := i.due(time.Now())
		for _, s := range due {
			attempts.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				i.try(ctx, s)
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-i.wake:
		case <-time.After(wait):
		}
	}
}

func (i *Issuer) signal() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// due lists what has to be looked at, and says when to come again.
func (i *Issuer) due(now time.Time) (list []*state, wait time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	wait = lookAgain
	for _, s := range i.known {
		switch {
		case s.busy:
		case s.next.After(now):
			wait = min(wait, s.next.Sub(now))
		default:
			s.busy = true
			list = append(list, s)
		}
	}
	return list, wait
}

// try looks at a certificate and obtains one if it is due.
func (i *Issuer) try(ctx context.Context, s *state) {
	attempting, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	i.mu.Lock()
	c := s.Certificate
	i.mu.Unlock()
	obtained, again, err := i.ensure(attempting, c)
	if ctx.Err() != nil {
		return
	}
	i.mu.Lock()
	s.busy, s.err = false, err
	if err != nil {
		s.next = time.Now().Add(min(i.options.Again<<min(s.failures, 20), longestAgain))
		s.failures++
	} else {
		s.failures, s.next = 0, time.Now().Add(min(again, lookAgain))
	}
	i.mu.Unlock()
	if (obtained || err != nil) && i.options.Tell != nil {
		i.options.Tell(c, err)
	}
	i.signal()
}
