package server

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/ingress/engine/native"
	"github.com/fairway-net/fairway/ingress/gateway"
)

// Gateways say how one machine serves Gateways beside its API server.
type Gateways struct {
	Serve  bool
	Engine string
	// OneProcess has this process serve all of them, in place of one for each.
	OneProcess bool
}

// upDrain is how long connections of a Gateway have when `up` ends.
const upDrain = "3s"

// config is that of the Gateways of one machine. Their processes are the account's.
func (u *Gateways) config(api *rest.Config, account *gatewayAccount, node agent.Config) gateway.Config {
	c := gateway.Config{API: api, Node: node.NodeName, Kind: u.Engine, Engine: native.Options{HTTP3: true}, Logger: node.Log}
	if account == nil {
		return c
	}
	// With it, the processes of one that was killed are taken over from by those of the next.
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

// run serves until ctx is done.
func (u *Gateways) run(ctx context.Context, server *own, node agent.Config) error {
	if u.OneProcess {
		return gateway.Run(ctx, u.config(server.config(), nil, node))
	}
	account := u.account(ctx, server, node)
	if account == nil {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { account.keep(ctx); return nil })
	group.Go(func() error { return gateway.Run(ctx, u.config(server.config(), account, node)) })
	return errors.Join(group.Wait(), account.dir.Close())
}

// accountPause is when an account is asked for again that could not be made.
const accountPause = 10 * time.Second

// account makes the Gateways' account: as soon as it can be, for all else works without
// it. nil once ctx is done.
func (u *Gateways) account(ctx context.Context, server *own, node agent.Config) *gatewayAccount {
	for {
		account, err := newGatewayAccount(node.Plane.StateDirectory(), node.NodeName, server.server.Load, node.Log)
		if err == nil {
			return account
		}
		node.Log.Error("Gateways aren't served; trying again", "in", accountPause, "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(accountPause):
		}
	}
}
