package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Webhook is a URL that each state is sent to. Status 200 to 299 says that the
// state is in force; the answer may have a body.
type Webhook struct {
	URL     string
	Timeout time.Duration
	// Header is sent with each request: credentials, say.
	Header http.Header
	Client *http.Client
}

// String implements Target.
func (w *Webhook) String() string { return "webhook " + firstLine(w.URL) }

// Deliver implements Target.
func (w *Webhook) Deliver(ctx context.Context, s *State) (*Answer, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	deadline, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(deadline, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for name, values := range w.Header {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Fairway-Generation", strconv.FormatInt(s.Generation, 10))
	response, err := w.Client.Do(request)
	if err != nil {
		if errors.Is(deadline.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
			return nil, fmt.Errorf("no answer after %s", w.Timeout)
		}
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, said(fmt.Errorf("status %d", response.StatusCode), answer)
	}
	return parseAnswer(answer), nil
}

// NewClient is an HTTP client that goes nowhere else: a redirect is a failure.
func NewClient() *http.Client {
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
