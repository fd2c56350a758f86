package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/diagnose/agentlink"
)

// defaultFirstAnswerTimeout is how long an API server may take to begin its first answer.
// A server that hangs is not waited for: agents are asked instead. Long answers come later, and aren't bounded by it.
const defaultFirstAnswerTimeout = 5 * time.Second

// defaultConnectTimeout is how long a connection to it may take where there is an agent to ask instead:
// a machine without power takes none, and a server that is busy does.
const defaultConnectTimeout = 500 * time.Millisecond

// Answers is what is known of the API server: that it has answered, or when it last didn't.
type Answers struct {
	// FirstAnswerTimeout is how long the first answer may take to begin; 0 is five seconds.
	FirstAnswerTimeout time.Duration
	// ConnectTimeout is how long a connection may take; 0 is as long as the answer.
	ConnectTimeout time.Duration

	connectOnce sync.Once
	some        atomic.Bool
	silent      atomic.Pointer[silence]
}

// silence is when and how the server hasn't answered.
type silence struct {
	at  time.Time
	how silentError
}

// silence is how it hasn't answered just now; nil if it has, or wasn't asked.
func (a *Answers) silence() error {
	if s := a.silent.Load(); s != nil && time.Since(s.at) < a.firstAnswerTimeout() {
		return s.how
	}
	return nil
}

func (a *Answers) firstAnswerTimeout() time.Duration {
	return cmp.Or(a.FirstAnswerTimeout, defaultFirstAnswerTimeout)
}

// silentError says that the API server hasn't begun to answer in time.
type silentError struct{ after time.Duration }

// Error implements error.
func (e silentError) Error() string {
	return fmt.Sprintf("the API server doesn't answer in %s", e.after)
}

// WithFirstAnswerTimeout has requests fail while the server has answered none and hangs, if Answers are
// kept.
func (s *Source) WithFirstAnswerTimeout(config *rest.Config) *rest.Config {
	if s.Answers == nil {
		return config
	}
	s.Answers.connectOnce.Do(func() {
		if s.Answers.ConnectTimeout == 0 && len(s.Files) == 0 && len(agentlink.Sockets(s.socketPatterns()...)) > 0 {
			s.Answers.ConnectTimeout = defaultConnectTimeout
		}
	})
	return s.Answers.withFirstAnswerTimeout(config)
}

// withFirstAnswerTimeout has requests fail while the server has answered none and hangs.
func (a *Answers) withFirstAnswerTimeout(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { return &firstAnswer{base, a} })
	return config
}

type firstAnswer struct {
	base    http.RoundTripper
	answers *Answers
}

// RoundTrip is part of http.RoundTripper.
func (f *firstAnswer) RoundTrip(request *http.Request) (*http.Response, error) {
	if f.answers.some.Load() {
		return f.base.RoundTrip(request)
	}
	if err := f.answers.silence(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(request.Context())
	within := func(limit time.Duration) *time.Timer {
		return time.AfterFunc(limit, func() { cancel(silentError{limit}) })
	}
	connecting := within(cmp.Or(f.answers.ConnectTimeout, f.answers.firstAnswerTimeout()))
	answering := within(f.answers.firstAnswerTimeout())
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connecting.Stop() }})
	response, err := f.base.RoundTrip(request.WithContext(traced))
	connecting.Stop()
	answering.Stop()
	if err != nil {
		if how, is := errors.AsType[silentError](context.Cause(ctx)); is {
			f.answers.silent.Store(&silence{time.Now(), how})
			err = how
		}
		cancel(nil)
		return nil, err
	}
	f.answers.some.Store(true)
	response.Body = &endingBody{response.Body, func() { cancel(nil) }}
	return response, nil
}

// WrappedRoundTripper implements net.RoundTripperWrapper of apimachinery.
func (f *firstAnswer) WrappedRoundTripper() http.RoundTripper { return f.base }

// endingBody gives up the request's context once it is read.
type endingBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b *endingBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}
