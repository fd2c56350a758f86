package collect

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"testing"
	"testing/synctest"
	"time"
)

// server answers after a while, once there is a connection to it; with no while there is none.
type server struct{ after time.Duration }

// RoundTrip implements http.RoundTripper.
func (s server) RoundTrip(r *http.Request) (*http.Response, error) {
	var answers <-chan time.Time
	if s.after > 0 {
		if trace := httptrace.ContextClientTrace(r.Context()); trace != nil { // else it has answered before
			trace.GotConn(httptrace.GotConnInfo{})
		}
		answers = time.After(s.after)
	}
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-answers:
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}
}

// TestConnects: a server to which there is no connection in time is given up, and not asked again
// at once; one that is slow to answer is waited for, but not for ever.
func TestConnects(t *testing.T) {
	const answer, connect = 5 * time.Second, 500 * time.Millisecond
	for name, test := range map[string]struct {
		server server
		gives  time.Duration // up, after so long; 0 if it answers
	}{
		"no connection": {server{}, connect},
		"slow":          {server{time.Second}, 0},
		"hangs":         {server{time.Hour}, answer},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &firstAnswer{test.server, &Answers{FirstAnswerTimeout: answer, ConnectTimeout: connect}}
				request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://api", nil)
				if err != nil {
					t.Fatal(err)
				}
				for i, began := range []time.Time{time.Now(), time.Now()} {
					response, err := f.RoundTrip(request)
					if err == nil {
						_ = response.Body.Close()
					}
					how, _ := errors.AsType[silentError](err)
					if how.after != test.gives {
						t.Errorf("request %d: %v", i, err)
					}
					if took := time.Since(began); test.gives > 0 && took != test.gives {
						t.Errorf("request %d: given up after %s", i, took)
					}
				}
			})
		})
	}
}
