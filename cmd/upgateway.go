//go:build !agentonly

package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/ingress/engine/native"
	"github.com/fairway-net/fairway/ingress/engines"
	"github.com/fairway-net/fairway/ingress/gateway"
)

// upGateways say how `up` serves Gateways.
type upGateways struct {
	serve             bool
	engine, processes string
}

func (u *upGateways) add(flags *pflag.FlagSet) {
	flags.BoolVar(&u.serve, "gateway", u.serve, "serve Gateways and Ingresses on this machine")
	flags.StringVar(&u.engine, "gateway-engine", u.engine, "what serves them: native, in this program, or haproxy, which must be installed (2.6 or later)")
	flags.StringVar(&u.processes, "gateway-processes", u.processes, "gateway: each Gateway has a process of its own, and all Ingresses have one, so that none can bring down another or the API server; one: this process serves all")
}

func (u *upGateways) check() error {
	if err := engines.Check(u.engine); err != nil {
		return fmt.Errorf("--gateway-engine: %w", err)
	}
	if u.processes != processesPerGateway && u.processes != oneProcess {
		return fmt.Errorf("--gateway-processes %q: must be %s or %s", u.processes, processesPerGateway, oneProcess)
	}
	return nil
}

// upDrain is how long connections of a Gateway have when `up` ends.
const upDrain = "3s"

// config is that of the Gateways of one machine. Their processes are the account's.
func (u *upGateways) config(api *rest.Config, account *gatewayAccount, node agent.Config) gateway.Config {
	c := gateway.Config{API: api, Node: node.NodeName, Kind: u.engine, Engine: native.Options{HTTP3: true}, Logger: node.Log}
	if account == nil {
		return c
	}
	// With it, the processes of one that was killed are taken over from by those of the next.
	c.Handover = "@fairway-up-gateway-" + node.NodeName
	c.Command = func(one types.NamespacedName) *exec.Cmd {
		command := exec.Command("/proc/self/exe", "gateway", "--kubeconfig", account.kubeconfig(), "--node-name", node.NodeName, "--engine", u.engine,
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
func (u *upGateways) run(ctx context.Context, own *ownServer, node agent.Config) error {
	if u.processes == oneProcess {
		return gateway.Run(ctx, u.config(own.config(), nil, node))
	}
	account := u.account(ctx, own, node)
	if account == nil {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { account.keep(ctx); return nil })
	group.Go(func() error { return gateway.Run(ctx, u.config(own.config(), account, node)) })
	return errors.Join(group.Wait(), account.dir.Close())
}

// accountPause is when an account is asked for again that could not be made.
const accountPause = 10 * time.Second

// account makes the Gateways' account: as soon as it can be, for all else works without
// it. nil once ctx is done.
func (u *upGateways) account(ctx context.Context, own *ownServer, node agent.Config) *gatewayAccount {
	for {
		account, err := newGatewayAccount(node.Plane.StateDirectory(), node.NodeName, own.server.Load, node.Log)
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
