package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/latest"
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

// order is a line of JSON from the supervisor. If there is nothing more to read, it is gone.
type order struct {
	// End has the member end.
	End bool `json:"end,omitempty"`
	// Gone are the machines that are gone, if End isn't said.
	Gone []compile.Machine `json:"gone,omitempty"`
}

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
	c.Gone = &latest.Value[[]compile.Machine]{}
	go obey(os.Stdin, c.Gone.Set, end)
	return ctx, file.Close()
}

// memberAddress is where a Gateway's process hands its listeners over.
func memberAddress(address string, gateway types.NamespacedName) string {
	sum := sha256.Sum256([]byte(gateway.String()))
	return address + "." + hex.EncodeToString(sum[:8])
}

// obey takes in what the supervisor says, and ends the process when it says so, or some time after
// it is gone.
func obey(orders io.Reader, gone func([]compile.Machine), end context.CancelFunc) {
	for read := json.NewDecoder(orders); ; {
		var o order
		err := read.Decode(&o)
		if err == nil && !o.End {
			gone(o.Gone)
			continue
		}
		if err != nil {
			time.Sleep(orphanLimit)
		}
		end()
		return
	}
}
