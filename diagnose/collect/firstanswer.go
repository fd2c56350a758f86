package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// defaultFirstAnswerTimeout is how long an API server has time to begin its first answer. Agents are asked
// instead of one that hangs; who waits for an answer of ten thousand objects has had others.
const defaultFirstAnswerTimeout = 5 * time.Second

// Answers is what is known of the API server: that it has answered, or when it last didn't.
type Answers struct {
	// FirstAnswerTimeout is how long the first answer may take to begin; 0 is five seconds.
	FirstAnswerTimeout time.Duration

	some   atomic.Bool
	silent atomic.Pointer[time.Time]
}

// isSilent reports whether it hasn't answered just now.
func (a *Answers) isSilent() bool {
	at := a.silent.Load()
	return at != nil && time.Since(*at) < a.firstAnswerTimeout()
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
	switch {
	case f.answers.some.Load():
		return f.base.RoundTrip(request)
	case f.answers.isSilent():
		return nil, silentError{f.answers.firstAnswerTimeout()}
	}
	ctx, cancel := context.WithCancelCause(request.Context())
	silent := silentError{f.answers.firstAnswerTimeout()}
	timer := time.AfterFunc(silent.after, func() { cancel(silent) })
	response, err := f.base.RoundTrip(request.WithContext(ctx))
	timer.Stop()
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, silent) {
			now := time.Now()
			f.answers.silent.Store(&now)
			err = cause
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
