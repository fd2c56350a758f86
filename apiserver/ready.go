package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// readyTimeout bounds the wait for the server to become ready.
const readyTimeout = 60 * time.Second

// waitReady polls the server's own readiness.
func (s *Server) waitReady(ctx context.Context) error {
	client, err := rest.HTTPClientFor(s.loopback)
	if err != nil {
		return fmt.Errorf("create loopback client: %w", err)
	}
	url := s.loopback.Host + "/readyz"
	if s.config.membership != nil {
		url += "?exclude=" + diskCheck // a server whose disk is full starts, and is read
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := ready(ctx, client, url)
		if err == nil {
			return nil
		}
		select {
		case <-s.stopped:
			return fmt.Errorf("start API server: %w", errors.Join(s.err, err))
		case <-ctx.Done():
			return fmt.Errorf("wait for API server to be ready: %w", errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func ready(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("ask for readiness: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask for readiness: %w", err)
	}
	if err := resp.Body.Close(); err != nil {
		return fmt.Errorf("ask for readiness: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", resp.Status)
	}
	return nil
}
