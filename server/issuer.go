package server

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/internal/machineuser"
	"github.com/fairway-net/fairway/kube/balance"
	"github.com/fairway-net/fairway/kube/join"
)

// ownIssuer signs itself: the server is this process's.
type ownIssuer struct {
	server func() *apiserver.Server // the latest start
}

func (o ownIssuer) issue(_ context.Context, node string) (*credential, error) {
	server := o.server()
	pair, err := server.MachineSigner().ClientFor(CredentialLife, machineuser.GatewayPrefix+node, machineuser.GatewaysGroup)
	if err != nil {
		return nil, err
	}
	return &credential{cert: pair.Cert, key: pair.Key, url: server.URL(), ca: server.CA()}, nil
}

func (o ownIssuer) state() any { return o.server() }

// memberIssuer asks a server, as a machine that has joined.
type memberIssuer struct {
	client  kubernetes.Interface
	knows   rest.TLSClientConfig // what servers are known by
	servers *balance.Balancer
	list    string // the file that has them
}

func (m *memberIssuer) issue(ctx context.Context, node string) (*credential, error) {
	cert, key, err := join.GatewayCertificate(ctx, m.client, node, CredentialLife)
	if err != nil {
		return nil, err
	}
	ca := m.knows.CAData
	if len(ca) == 0 && m.knows.CAFile != "" { // another one since the last time, maybe
		if ca, err = os.ReadFile(m.knows.CAFile); err != nil {
			return nil, fmt.Errorf("read what the servers are known by: %w", err)
		}
	}
	return &credential{cert: cert, key: key, url: m.servers.Server(), ca: ca, servers: m.list}, nil
}

// state is always the same: a server that is started again honours what it has signed.
func (m *memberIssuer) state() any { return nil }
