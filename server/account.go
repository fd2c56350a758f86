package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairway-net/fairway/ingress/gateway"
	"github.com/fairway-net/fairway/internal/keptfile"
	"github.com/fairway-net/fairway/internal/machineuser"
	"github.com/fairway-net/fairway/kube/balance"
)

// gatewayUser is the user that the processes of Gateways run as, and no other: the
// same as in clusters.
const gatewayUser = 10260

// gatewayAccount is what the processes of Gateways are to the machine and to the API: a
// user without rights, and a credential by which they read what they serve.
type gatewayAccount struct {
	issuer issuer
	node   string
	log    *slog.Logger
	path   string
	// dir is handed to the processes, which the directories above may not let through.
	dir     *os.File
	user    *syscall.Credential // nil for this process's own
	servers string              // a file that names API servers
	known   []byte              // its content, as the processes have it
	issued  time.Time
	by      any // the issuer's state when it was issued
}

// issuer makes credentials of processes of Gateways.
type issuer interface {
	// issue makes one for a machine.
	issue(ctx context.Context, node string) (*credential, error)
	// state is another one once earlier credentials are of no use.
	state() any
}

// credential is what a process shows, and to whom.
type credential struct {
	cert, key []byte
	url       string // of a server
	ca        []byte
	servers   string // a file that names more of them; "" if there is none
}

// The files of the Gateways' credential, in the directory gateway-NODE of the state directory.
const (
	CredentialConfig = "kubeconfig"
	CredentialCert   = "client.pem"
)

var (
	// CredentialLife is how long a credential lasts. It is renewed when half of that is over.
	CredentialLife = 24 * time.Hour
	// CredentialLook is how often it is looked at. Clients read the file every five minutes.
	CredentialLook = time.Minute
)

// newGatewayAccount issues the first credential, in a directory of the state directory.
func newGatewayAccount(ctx context.Context, stateDir, node string, by issuer, log *slog.Logger) (*gatewayAccount, error) {
	a := &gatewayAccount{issuer: by, node: node, log: log, path: filepath.Join(stateDir, "gateway-"+node)}
	if err := os.MkdirAll(a.path, 0o750); err != nil {
		return nil, fmt.Errorf("make the directory of the Gateways' credential: %w", err)
	}
	var err error
	if a.dir, err = os.Open(a.path); err != nil {
		return nil, fmt.Errorf("open the directory of the Gateways' credential: %w", err)
	}
	if os.Geteuid() == 0 {
		a.user = &syscall.Credential{Uid: gatewayUser, Gid: gatewayUser}
	} else {
		a.log.Warn("the processes of Gateways run as this user: only root can give them one of their own", "uid", os.Geteuid())
	}
	if err = a.issue(ctx, time.Now()); err == nil && a.user != nil {
		err = a.try()
	}
	if err != nil && a.user != nil {
		a.log.Warn("the processes of Gateways run as root: they can't have a user of their own; see docs/how-to/ingress.md", "uid", gatewayUser, "error", err)
		a.user = nil
		err = a.issue(ctx, time.Now())
	}
	if err != nil {
		return nil, errors.Join(err, a.dir.Close())
	}
	return a, nil
}

// kubeconfig is where a process finds its credential.
func (a *gatewayAccount) kubeconfig() string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", gateway.CredentialFile, CredentialConfig)
}

// issue writes a new credential. Certificate and key are one file, so that nobody reads
// one with another's.
func (a *gatewayAccount) issue(ctx context.Context, now time.Time) error {
	state := a.issuer.state()
	fresh, err := a.issuer.issue(ctx, a.node)
	if err != nil {
		return err
	}
	user := machineuser.GatewayPrefix + a.node
	config := clientcmdapi.NewConfig()
	config.Clusters["fairway"] = &clientcmdapi.Cluster{Server: fresh.url, CertificateAuthorityData: fresh.ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificate: CredentialCert, ClientKey: CredentialCert}
	config.Contexts["fairway"] = &clientcmdapi.Context{Cluster: "fairway", AuthInfo: user}
	config.CurrentContext = "fairway"
	text, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode kubeconfig of %s: %w", user, err)
	}
	if err := a.ownDirectory(); err != nil {
		return err
	}
	if err := a.write(CredentialCert, slices.Concat(fresh.cert, fresh.key)); err != nil {
		return err
	}
	if err := a.write(CredentialConfig, text); err != nil {
		return err
	}
	a.issued, a.by, a.servers = now, state, fresh.servers
	return a.copyServers()
}

// copyServers has the processes know all servers that this machine knows.
func (a *gatewayAccount) copyServers() error {
	if a.servers == "" {
		return nil
	}
	text, err := os.ReadFile(a.servers)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read which API servers there are: %w", err)
	}
	if bytes.Equal(text, a.known) {
		return nil
	}
	a.known = text
	return a.write(balance.FileName, text)
}

// ownDirectory lets the user enter it, and not write there.
func (a *gatewayAccount) ownDirectory() error {
	group := os.Getegid()
	if a.user != nil {
		group = gatewayUser
	}
	if err := errors.Join(a.dir.Chown(os.Geteuid(), group), a.dir.Chmod(0o750)); err != nil {
		return fmt.Errorf("make the directory of the Gateways' credential: %w", err)
	}
	return nil
}

// write replaces a file that only the user reads.
func (a *gatewayAccount) write(name string, text []byte) error {
	owner := -1
	if a.user != nil {
		owner = gatewayUser
	}
	return keptfile.WriteFor(filepath.Join(a.path, name), text, 0o400, owner, owner)
}

// try becomes the user, in a thread that ends with it, and does what a process of a
// Gateway does first.
func (a *gatewayAccount) try() error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		result <- a.tryAsUser()
	}()
	return <-result
}

func (a *gatewayAccount) tryAsUser() error {
	// Raw, for the calls of package syscall change all threads.
	if _, _, err := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); err != 0 {
		return fmt.Errorf("leave all groups (CAP_SETGID): %w", err)
	}
	if _, _, err := unix.RawSyscall(unix.SYS_SETRESGID, gatewayUser, gatewayUser, gatewayUser); err != 0 {
		return fmt.Errorf("change group (CAP_SETGID): %w", err)
	}
	if _, _, err := unix.RawSyscall(unix.SYS_SETRESUID, gatewayUser, gatewayUser, gatewayUser); err != 0 {
		return fmt.Errorf("change user (CAP_SETUID): %w", err)
	}
	if _, err := os.ReadFile(fmt.Sprintf("/proc/thread-self/fd/%d/%s", a.dir.Fd(), CredentialCert)); err != nil {
		return fmt.Errorf("read the credential: %w", err)
	}
	if err := unix.Access("/proc/self/exe", unix.X_OK); err != nil {
		return fmt.Errorf("run this program: %w", err)
	}
	return nil
}

// keep renews the credential in time, and after a start of the server, until ctx is done.
func (a *gatewayAccount) keep(ctx context.Context) {
	look := time.NewTicker(CredentialLook)
	defer look.Stop()
	for {
		if now := time.Now(); a.due(now) {
			if err := a.issue(ctx, now); err != nil {
				a.log.Error("the Gateways' credential wasn't renewed; trying again", "retry-in", CredentialLook, "error", err)
			}
		} else if err := a.copyServers(); err != nil {
			a.log.Error("the processes of Gateways don't know all API servers", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// due reports whether the credential is to be renewed. A clock that was set back makes
// it one of the future.
func (a *gatewayAccount) due(now time.Time) bool {
	age := now.Round(0).Sub(a.issued.Round(0)) // by the clock of certificates
	return age >= CredentialLife/2 || age < 0 || a.issuer.state() != a.by
}
