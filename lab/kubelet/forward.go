package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// servePortForward serves connections to ports of a pod.
func (k *Kubelet) servePortForward(w http.ResponseWriter, req *http.Request) {
	r, err := k.find(req.PathValue("namespace"), req.PathValue("pod"))
	if err != nil {
		refuse(w, http.StatusNotFound, err)
		return
	}
	options, err := portforward.NewV4Options(req)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	portforward.ServePortForward(w, req, forwarder{r.sandbox}, req.PathValue("pod"), "", options, streamIdle, streamCreation, forwardProtocols)
}

// forwarder connects to ports inside a pod.
type forwarder struct{ to *sandbox }

// PortForward implements portforward.PortForwarder: to the pod's loopback address.
func (f forwarder) PortForward(ctx context.Context, name, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := f.dial(ctx, strconv.Itoa(int(port)))
	if err != nil {
		return fmt.Errorf("connect to port %d of pod %s: %w", port, name, err)
	}
	defer conn.Close()
	var sent sync.WaitGroup
	sent.Go(func() {
		_, _ = io.Copy(conn, stream) // an end of either is the end
		if c, ok := conn.(*net.TCPConn); ok {
			_ = c.CloseWrite()
		}
	})
	_, err = io.Copy(stream, conn)
	_ = stream.Close()
	sent.Wait()
	if errors.Is(err, os.ErrClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (f forwarder) dial(ctx context.Context, port string) (net.Conn, error) {
	conn, err := f.to.host.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err == nil {
		return conn, nil
	}
	if six, err6 := f.to.host.DialContext(ctx, "tcp", net.JoinHostPort("::1", port)); err6 == nil {
		return six, nil
	}
	// The lab's own servers listen at the pod's addresses.
	for _, a := range f.to.addresses() {
		if other, err := f.to.host.DialContext(ctx, "tcp", net.JoinHostPort(a.String(), port)); err == nil {
			return other, nil
		}
	}
	return nil, err
}
