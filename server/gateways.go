package server

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/ingress/engine/native"
	"github.com/fairway-net/fairway/ingress/gateway"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/balance"
)

// Gateways say how one machine serves Gateways, beside its API server or its agent.
type Gateways struct {
	Serve  bool
	Engine string
	// OneProcess has this process serve all Gateways; otherwise each has a process of its
	// own. Only run heeds it: a machine without an API server always has the processes.
	OneProcess bool
}

// upDrain is how long a Gateway's open connections may go on once `fairway up` is asked to end.
const upDrain = "3s"

// config configures the Gateways of one machine. Their processes run as the account; without
// one, this process serves them.
func (u *Gateways) config(api *rest.Config, account *gatewayAccount, node agent.Config) gateway.Config {
	c := gateway.Config{API: api, Node: node.NodeName, Kind: u.Engine, Engine: native.Options{HTTP3: true}, Logger: node.Log, Gone: node.Gone}
	if account == nil {
		return c
	}
	// If `up` is killed, its Gateways' processes live on. The next start finds them by this
	// name, and its processes take over from them.
	c.Handover = "@fairway-up-gateway-" + node.NodeName
	c.Command = func(one types.NamespacedName) *exec.Cmd {
		command := exec.Command("/proc/self/exe", "gateway", "--kubeconfig", account.kubeconfig(), "--node-name", node.NodeName, "--engine", u.Engine,
			"--handover", c.Handover, "--metrics-bind-address", "", "--shutdown-delay", "0s", "--drain-timeout", upDrain, "--only", one.String())
		command.Args[0] = os.Args[0]
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		command.ExtraFiles = []*os.File{account.dir}
		command.SysProcAttr = &syscall.SysProcAttr{Credential: account.user}
		return command
	}
	return c
}

// run serves Gateways beside the API server of this process until ctx is done.
func (u *Gateways) run(ctx context.Context, server *own, node agent.Config) error {
	if u.OneProcess {
		return gateway.Run(ctx, u.config(server.config(), nil, node))
	}
	return u.serve(ctx, server.config(), ownIssuer{server.server.Load}, node)
}

// RunJoined serves Gateways on a machine that joined a cluster, with the rights of node.API,
// until ctx is done. The machine's files are in dir.
func (u *Gateways) RunJoined(ctx context.Context, dir string, servers *balance.Balancer, node agent.Config) error {
	client, err := kube.Client(node.API)
	if err != nil {
		return err
	}
	return u.serve(ctx, node.API, &memberIssuer{client, node.API.TLSClientConfig, servers, filepath.Join(dir, balance.FileName)}, node)
}

// serve has a process for each Gateway, by the credentials of an issuer, until ctx is done.
func (u *Gateways) serve(ctx context.Context, api *rest.Config, by issuer, node agent.Config) error {
	account := u.account(ctx, by, node)
	if account == nil {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { account.keep(ctx); return nil })
	group.Go(func() error { return gateway.Run(ctx, u.config(api, account, node)) })
	return errors.Join(group.Wait(), account.dir.Close())
}

// An account that could not be made is asked for again after accountPause, and then after
// growing pauses: a server may have been told not to give it.
const accountPause, accountLongest = 10 * time.Second, 5 * time.Minute

// account makes the Gateways' account: as soon as it can be, for all else works without
// it. nil once ctx is done.
func (u *Gateways) account(ctx context.Context, by issuer, node agent.Config) *gatewayAccount {
	said, pause := "", accountPause
	for ; ; pause = min(2*pause, accountLongest) {
		account, err := newGatewayAccount(ctx, node.Plane.StateDirectory(), node.NodeName, by, node.Log)
		if err == nil {
			return account
		}
		if ctx.Err() == nil && said != err.Error() {
			said = err.Error()
			node.Log.Error("this machine doesn't serve Gateways; trying again until it can", "retry-in", pause, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}
