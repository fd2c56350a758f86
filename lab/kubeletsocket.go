package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/fairway-net/fairway/lab/kubelet"
)

// kubeletSocket is where the kubelet of a lab's nodes answers for what runs in
// pods. Only root reaches it.
func kubeletSocket(lab string) string { return filepath.Join(Dir(lab), "kubelet.sock") }

// serveKubelet serves the kubelet's API until ctx is done.
func (s *supervisor) serveKubelet(ctx context.Context, k *kubelet.Kubelet) error {
	listener, err := net.Listen("unix", kubeletSocket(s.config.Name))
	if err != nil {
		return fmt.Errorf("serve the kubelet's API: %w", err)
	}
	if err := os.Chmod(kubeletSocket(s.config.Name), 0o600); err != nil {
		return errors.Join(fmt.Errorf("serve the kubelet's API: %w", err), listener.Close())
	}
	server := &http.Server{Handler: k.Handler(), BaseContext: func(net.Listener) context.Context { return ctx }}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // streams don't end by themselves
	s.group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the kubelet's API: %w", err)
		}
		return nil
	})
	return nil
}
