package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
)

// Reach returns a copy of cfg whose requests tell whether the API answers: nil if
// it did, else why not. Requests that this side gave up tell nothing. Calls come
// from any goroutine and must not block.
func Reach(cfg *rest.Config, tell func(error)) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &reach{next, tell} })
	return cfg
}

type reach struct {
	next http.RoundTripper
	tell func(error)
}

// RoundTrip is part of http.RoundTripper.
func (r *reach) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	switch {
	case err == nil && !unavailable(response.StatusCode):
		r.tell(nil)
	case err == nil:
		r.tell(fmt.Errorf("%s answers %s", request.URL.Host, response.Status))
	case request.Context().Err() == nil && !errors.Is(err, context.Canceled):
		r.tell(err)
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport below.
func (r *reach) WrappedRoundTripper() http.RoundTripper { return r.next }

// unavailable says of an HTTP status that nobody behind it can serve now.
func unavailable(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}
