package realcluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Way is how a client asks a server.
type Way string

// The ways that there are.
const (
	TCP  Way = "tcp"  // a line: who answers, and whom it sees
	UDP  Way = "udp"  // a datagram: likewise
	Name Way = "name" // the addresses of a name
	Body Way = "body" // a body of 1 MB sent, and one received
	Code Way = "code" // the status of GET /
	// Routed is GET /hostname for the host shop.example.com: who answers.
	Routed Way = "routed"
)

// Answer is what a client got.
type Answer struct {
	Server string // who answered, a name's addresses, a status
	Client string // the address that the server saw
	Failed string // why there is no answer, in a word: "refused", "timeout"
}

// timeout is how long a client waits.
const timeout = 3 * time.Second

// Ask asks once, from where the process runs.
func Ask(way Way, to string) Answer {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var a Answer
	var err error
	switch way {
	case TCP, UDP:
		a, err = askLine(ctx, string(way), to)
	case Name:
		var addrs []netip.Addr
		addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", to)
		var texts []string
		for _, addr := range addrs {
			texts = append(texts, addr.Unmap().String())
		}
		a.Server = strings.Join(texts, " ")
	case Body:
		a.Server, err = askBody(ctx, to)
	case Code:
		a.Server, err = askCode(ctx, to)
	case Routed:
		a.Server, err = askRouted(ctx, to)
	default:
		err = fmt.Errorf("no way %q", way)
	}
	if err != nil {
		return Answer{Failed: reason(err)}
	}
	return a
}

func askLine(ctx context.Context, network, to string) (a Answer, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, to)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return a, err
	}
	if _, err := io.WriteString(conn, "who\n"); err != nil {
		return a, err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return a, err
	}
	server, client, _ := strings.Cut(strings.TrimSpace(line), " ")
	addr, err := netip.ParseAddrPort(client)
	if err != nil {
		return a, fmt.Errorf("answer %q: %w", line, err)
	}
	return Answer{Server: server, Client: addr.Addr().Unmap().String()}, nil
}

const megabyte = 1 << 20

// transport keeps no connection: each request is a new one.
var transport = &http.Transport{DisableKeepAlives: true}

func askBody(ctx context.Context, to string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to+"/body", strings.NewReader(strings.Repeat("x", megabyte)))
	if err != nil {
		return "", err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	got, err := io.Copy(io.Discard, response.Body)
	return fmt.Sprintf("%d bytes back", got), err
}

func askCode(ctx context.Context, to string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+to+"/", nil)
	if err != nil {
		return "", err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	return response.Status, response.Body.Close()
}

func askRouted(ctx context.Context, to string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+to+"/hostname", nil)
	if err != nil {
		return "", err
	}
	request.Host = "shop.example.com"
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		return response.Status, nil
	}
	return strings.TrimSpace(string(text)), err
}

// reason is an error in a word, the same for each way to fail.
func reason(err error) string {
	var name *net.DNSError
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return "no such name"
	case errors.As(err, &name):
		return "name server: " + map[bool]string{true: "timeout", false: name.Err}[name.IsTimeout]
	case errors.Is(err, unix.ECONNREFUSED):
		return "refused"
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return "reset"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		return "timeout"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed"
	}
	var number syscall.Errno
	if errors.As(err, &number) {
		return number.Error()
	}
	return err.Error()
}
