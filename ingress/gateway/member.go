package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// member is what a process knows that serves one Gateway.
type member struct {
	gateway types.NamespacedName
	report  net.Listener // of its health and metrics, which only the supervisor asks for
}

const (
	// reportFile is the number of the listening socket that a member is given.
	reportFile = 3
	// CredentialFile is the number of the directory with its kubeconfig that a member may
	// be given: the first of the command's ExtraFiles.
	CredentialFile = reportFile + 1
	// orphanLimit is how long a member without a supervisor waits for the next one.
	orphanLimit = time.Minute
)

// endOrder has a member end. If there is nothing more to read, the supervisor is gone.
const endOrder = 'e'

// Member has a process serve one Gateway, "namespace/name", for the one that has
// started it by [Config.Command]. The context is done when that one says so, or when
// it is gone and no other has taken its place.
func (c *Config) Member(ctx context.Context, gateway string) (context.Context, error) {
	namespace, name, ok := strings.Cut(gateway, "/")
	if !ok {
		return nil, fmt.Errorf("gateway %q: must be NAMESPACE/NAME", gateway)
	}
	unix.CloseOnExec(CredentialFile) // haproxy has no use for it
	file := os.NewFile(reportFile, "report")
	report, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("only a process that serves all Gateways starts one for a single Gateway: %w", err)
	}
	c.member = &member{gateway: types.NamespacedName{Namespace: namespace, Name: name}, report: report}
	c.Listen, c.Upgrade, c.Command = "", nil, nil
	if c.Handover != "" {
		c.Handover = memberAddress(c.Handover, c.member.gateway)
	}
	if c.Logger != nil {
		c.Logger = c.Logger.With("gateway", gateway)
	}
	ctx, end := context.WithCancel(ctx)
	go obey(os.Stdin, end)
	return ctx, file.Close()
}

// memberAddress is where a Gateway's process hands its listeners over.
func memberAddress(address string, gateway types.NamespacedName) string {
	sum := sha256.Sum256([]byte(gateway.String()))
	return address + "." + hex.EncodeToString(sum[:8])
}

// obey ends the process when the supervisor says so, or some time after it is gone.
func obey(orders io.Reader, end context.CancelFunc) {
	order := make([]byte, 1)
	for {
		_, err := orders.Read(order)
		if err == nil && order[0] != endOrder || errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			time.Sleep(orphanLimit)
		}
		end()
		return
	}
}
