package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/fairway-net/fairway/apiserver/pki"
	"github.com/fairway-net/fairway/apiserver/rights"
	"github.com/fairway-net/fairway/apiserver/storage"
	"github.com/fairway-net/fairway/kube/join"
)

const (
	// joinTimeout is how long a server that joins waits for another that does.
	joinTimeout = 2 * time.Minute
	joinPeriod  = 2 * time.Second
	// joinAnswer bounds one answer: members are added by most of them.
	joinAnswer = 30 * time.Second
)

// Prepare lets a server join its cluster, if it is asked to and hasn't, and
// takes over what the cluster has decided. Start does it too; who needs to know
// the cluster's ranges before calls it first.
func Prepare(ctx context.Context, c *Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	lock, err := openDataDir(c.DataDir)
	if err != nil {
		return err
	}
	return errors.Join(c.joinOrInit(ctx), lock.Close())
}

// joinOrInit settles what this server is: alone, the first of a cluster, or one more.
// It may be interrupted anywhere, and called again.
func (c *Config) joinOrInit(ctx context.Context) error {
	if c.entered {
		return nil
	}
	m, err := readMembership(c.DataDir)
	if err != nil {
		return err
	}
	if err := c.checkPlace(m); err != nil {
		return err
	}
	if m == nil && !c.ClusterInit && c.Join == "" {
		return nil
	}
	if len(c.EtcdServers) > 0 {
		return fmt.Errorf("%s is of a server with a store of its own, in a cluster: it can't use another etcd", c.DataDir)
	}
	if c.AdvertiseAddress, err = c.advertised(); err != nil {
		return err
	}
	if err := c.checkReachable(); err != nil {
		return err
	}
	stored := storage.HasStore(c.etcdDir())
	switch {
	case c.Join != "":
		m, err = c.join(ctx, m, stored)
	case m == nil: // the first, which may have been alone until now
		m = &membership{Name: c.name(), shared: c.shared()}
		err = m.write(c.DataDir)
	case !stored && m.Stored:
		err = fmt.Errorf("%s is gone, and the cluster may go on without it: to join again, give --join and a new token; to begin anew, restore a snapshot first", c.etcdDir())
	case !stored && !c.ClusterInit:
		err = errors.New("this server hasn't finished joining: run the same command again, with --join and --token-file")
	}
	if err != nil {
		return err
	}
	c.entered, c.membership = true, m
	return c.adopt(m.shared)
}

// name tells this server from others.
func (c *Config) name() string {
	if c.membership != nil {
		return c.membership.Name
	}
	if c.ServerName != "" {
		return c.ServerName
	}
	if host, err := os.Hostname(); err == nil {
		return host
	}
	return c.AdvertiseAddress.String()
}

// joinRequest is what a server that joins says, and joinReply what it is told.
type joinRequest struct {
	Name    string `json:"name"`
	PeerURL string `json:"peerURL"`
	// Key names the key that answers at PeerURL, as pki.Hash does.
	Key string `json:"key"`
	// Wanted must suit the cluster.
	Wanted shared `json:"wanted"`
}

type joinReply struct {
	// Files are the keys of the cluster, by their names in DATA-DIR/pki.
	Files map[string][]byte `json:"files"`
	// InitialCluster names the members, in etcd's form.
	InitialCluster string `json:"initialCluster"`
	Shared         shared `json:"shared"`
}

// sharedFiles are in the pki directory of every server of a cluster.
var sharedFiles = []string{"ca.key", "ca.crt", "client-ca.key", "client-ca.crt", "etcd-ca.key", "etcd-ca.crt", "sa.key", "secrets.keys"}

// join makes this server one of a cluster's. One that is one already stays it.
func (c *Config) join(ctx context.Context, m *membership, stored bool) (*membership, error) {
	if c.Token == "" && !stored {
		var err error
		if c.Token, err = join.CredentialToken(); err != nil {
			return nil, err
		}
	}
	if c.Token == "" && !stored {
		return nil, errors.New("--token-file: not given; `fairway token create --server` on a server makes one")
	}
	token, err := join.ParseServerToken(c.Token)
	if err != nil && (!stored || c.Token != "") {
		return nil, err
	}
	if stored && m == nil {
		return nil, fmt.Errorf("%s has a store of its own: move it away to join another's cluster", c.etcdDir())
	}
	if stored {
		return m, nil // its token was used, and may name an authority that was replaced since
	}
	if err := c.checkAuthority(token); err != nil {
		return nil, err
	}
	ca, err := join.Trust(ctx, c.Join, token.CAHash, KubernetesVersion)
	if err != nil {
		return nil, err
	}
	place, err := holdPlace(netip.AddrPortFrom(c.BindAddress, uint16(c.PeerPort)))
	if err != nil {
		return nil, err
	}
	request := joinRequest{Name: c.name(), PeerURL: storage.PeerURL(c.peerAddress()), Key: place.key, Wanted: c.shared()}
	reply, err := ask(ctx, c.Join, token, ca, request)
	if err = errors.Join(err, place.leave()); err != nil {
		return nil, fmt.Errorf("join %s as %s: %w", c.Join, request.Name, err)
	}
	if err := c.keep(reply); err != nil {
		return nil, err
	}
	c.initialCluster = reply.InitialCluster
	m = &membership{Name: request.Name, shared: reply.Shared}
	return m, m.write(c.DataDir)
}

// checkAuthority refuses a data directory of another cluster than the token's.
func (c *Config) checkAuthority(token join.Token) error {
	data, err := os.ReadFile(filepath.Join(c.DataDir, "pki", "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) || token.CAHash == "" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read certificate authority: %w", err)
	}
	hash, err := join.HashPEM(data)
	if err == nil && hash != token.CAHash {
		err = fmt.Errorf("%s belongs to another cluster than the token: give another --data-dir, or move it away", c.DataDir)
	}
	return err
}

// keep writes the keys of the cluster down.
func (c *Config) keep(reply *joinReply) error {
	dir := filepath.Join(c.DataDir, "pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create certificate directory: %w", err)
	}
	for _, name := range sharedFiles {
		mode := os.FileMode(0o600)
		if filepath.Ext(name) == ".crt" {
			mode = 0o644
		}
		data, ok := reply.Files[name]
		if !ok {
			return fmt.Errorf("join %s: the server didn't hand over %s: is its version older?", c.Join, name)
		}
		if err := pki.WriteFile(filepath.Join(dir, name), data, mode); err != nil {
			return err
		}
	}
	return nil
}

// ask asks a server to let this one join, again while another one joins.
func ask(ctx context.Context, server string, token join.Token, ca []byte, request joinRequest) (*joinReply, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: joinAnswer}
	for began := time.Now(); ; {
		reply, again, err := askOnce(ctx, client, server, token, request)
		if err == nil || !again || time.Since(began) > joinTimeout {
			return reply, err
		}
		slog.Info("joining waits", "error", err)
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(joinPeriod):
		}
	}
}

// askOnce says besides whether it is worth to ask again.
func askOnce(ctx context.Context, client *http.Client, server string, token join.Token, request joinRequest) (*joinReply, bool, error) {
	data, err := json.Marshal(request)
	if err != nil {
		return nil, false, fmt.Errorf("write request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server+rights.JoinPath, bytes.NewReader(data))
	if err != nil {
		return nil, false, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token.Bearer())
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, false, err
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, false, fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, resp.StatusCode == http.StatusServiceUnavailable, refusal(resp, body)
	}
	reply := &joinReply{}
	if err := json.Unmarshal(body, reply); err != nil {
		return nil, false, fmt.Errorf("read answer: %w", err)
	}
	return reply, false, nil
}

// refusal is why a server doesn't let this one join.
func refusal(resp *http.Response, body []byte) error {
	if resp.StatusCode == http.StatusUnauthorized {
		said, _ := utilnet.ParseWarningHeaders(resp.Header.Values("Warning")) // without it the line below says less
		for _, warning := range said {
			return fmt.Errorf("%s; make a new one with `fairway token create --server` on a server", warning.Text)
		}
		return errors.New("the server doesn't accept the token; make a new one with `fairway token create --server`")
	}
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err == nil && status.Message != "" {
		return errors.New(status.Message)
	}
	return fmt.Errorf("the server answers %s", resp.Status)
}
