//go:build !agentonly

package cmd

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/pflag"
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

// config is that of the Gateways of one machine. The processes reach the API as an
// administrator does, since a machine's own credential reads no Secrets.
func (u *upGateways) config(api *rest.Config, kubeconfig string, node agent.Config) gateway.Config {
	c := gateway.Config{API: api, Node: node.NodeName, Kind: u.engine, Engine: native.Options{HTTP3: true}, Logger: node.Log}
	if u.processes == oneProcess {
		return c
	}
	// With it, the processes of one that was killed are taken over from by those of the next.
	c.Handover = "@fairway-up-gateway-" + node.NodeName
	c.Command = func(one types.NamespacedName) *exec.Cmd {
		command := exec.Command("/proc/self/exe", "gateway", "--kubeconfig", kubeconfig, "--node-name", node.NodeName, "--engine", u.engine,
			"--handover", c.Handover, "--metrics-bind-address", "", "--shutdown-delay", "0s", "--drain-timeout", upDrain, "--only", one.String())
		command.Args[0] = os.Args[0]
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		return command
	}
	return c
}
