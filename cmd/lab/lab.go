//go:build !agentonly

package lab

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/fairway-net/fairway/cmd/complete"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/demo"
	"github.com/fairway-net/fairway/lab/echo"
)

func Lab() *cobra.Command {
	c := &cobra.Command{
		Use:   "lab",
		Short: "Try it: nodes, pods and an outside client made of network namespaces",
	}
	c.AddCommand(labUpCommand(), labDownCommand(), labStatusCommand(), labExecCommand(), labKubectlCommand(), labBreakCommand(), labMendCommand(), labDemoCommand(), labEchoCommand())
	for _, sub := range c.Commands() {
		completeLabName(sub)
	}
	return c
}

// addLabFlags binds the flags that say what a lab shall be; the configuration's
// present values are the defaults.
func addLabFlags(flags *pflag.FlagSet, c *lab.Config) {
	flags.StringVar(&c.Name, "name", c.Name, "name of the lab; several run side by side")
	flags.IntVar(&c.Nodes, "nodes", c.Nodes, "number of nodes")
	flags.StringVar(&c.Mode, "mode", c.Mode, "data plane of the nodes' agents; none for nodes without agents")
	flags.Var(&config.CIDRs{List: &c.ServiceCIDRs}, "service-cidr", "range of cluster IPs; a second one, of the other IP family, makes the lab dual-stack")
	flags.StringVar(&c.Kubernetes, "kubernetes", "", "directory of Kubernetes' own etcd, kube-apiserver and kube-controller-manager (see hack/kubernetes/build), to be used instead of Fairway's")
	flags.Var((*config.Ranges)(&c.LoadBalancerRanges), "load-balancer-range", "addresses for Services of type LoadBalancer, such as 172.30.200.1-172.30.200.99, announced to the client; may be repeated")
	flags.StringVar(&c.Router, "router", "", "a BGP router, frr or bird, between the nodes and the client")
	flags.StringArrayVar(&c.Images, "image", nil, "host command to run for an image, as IMAGE=COMMAND; IMAGE is a part of the image's name, such as --image='whoami=/usr/local/bin/whoami --port 80'; may be repeated")
	flags.BoolVar(&c.Gateway, "gateway", c.Gateway, "every node serves Gateways and Ingresses")
	flags.BoolVar(&c.ClientSeesClusterIPs, lab.ClientRouteFlag, false, "the client outside has a route to cluster IPs, which machines outside of a cluster have not")
	flags.StringVar(&c.GatewayEngine, "gateway-engine", "", "engine for them: native or haproxy (default native)")
	flags.StringArrayVar(&c.AgentArgs, "agent-arg", nil, "further argument for every agent, such as --agent-arg=--verbose; may be repeated")
}

// addLabName adds the flag that says which lab is meant: by default that of KUBECONFIG.
func addLabName(flags *pflag.FlagSet, name *string) {
	flags.StringVar(name, "name", lab.NameOf(os.Getenv("KUBECONFIG")), "name of the lab; by default that of KUBECONFIG, if that is a lab's")
	flags.Lookup("name").DefValue = lab.DefaultName
}

func labUpCommand() *cobra.Command {
	config := lab.DefaultConfig()
	var foreground, background bool
	c := &cobra.Command{
		Use:   "up",
		Short: "Create a lab, and print how to use it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ready := func() error {
				return lab.WriteWelcome(cmd.Context(), cmd.OutOrStdout(), config.Name)
			}
			switch {
			case background:
				return lab.RunBackground(cmd.Context(), config)
			case foreground:
				return lab.Run(cmd.Context(), config, ready)
			}
			if err := lab.Up(cmd.Context(), config); err != nil {
				return err
			}
			return ready()
		},
	}
	addLabFlags(c.Flags(), &config)
	c.Flags().BoolVar(&foreground, "foreground", false, "stay in the foreground, and remove the lab at the end")
	c.Flags().BoolVar(&background, "background-supervisor", false, "be the process that `lab up` starts")
	if err := c.Flags().MarkHidden("background-supervisor"); err != nil {
		panic(err) // the flag is defined above
	}
	return c
}

func labDownCommand() *cobra.Command {
	var name string
	var all bool
	c := &cobra.Command{
		Use:   "down",
		Short: "Remove a lab, and what a crash left of it",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if !all {
				return lab.Down(name)
			}
			names, err := lab.List()
			if err != nil {
				return err
			}
			errs := []error{}
			for _, n := range names {
				errs = append(errs, lab.Down(n))
			}
			return errors.Join(errs...)
		},
	}
	addLabName(c.Flags(), &name)
	c.Flags().BoolVar(&all, "all", false, "remove all labs")
	return c
}

func labStatusCommand() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:     "status",
		Aliases: []string{"list"},
		Short:   "List the labs, or show the state of one",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name == "" {
				return lab.WriteList(cmd.OutOrStdout())
			}
			return lab.WriteStatus(cmd.Context(), cmd.OutOrStdout(), name)
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the lab; all without it")
	return c
}

func labExecCommand() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "exec NODE|POD|NAMESPACE/POD|client|underlay -- COMMAND [ARGUMENT...]",
		Short: "Run a command inside a node, a pod or the outside client",
		Args:  cobra.MinimumNArgs(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return complete.Starting(labTargets(name), typed), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			return lab.Exec(name, args[0], args[1:])
		},
	}
	addLabName(c.Flags(), &name)
	return c
}

func labDemoCommand() *cobra.Command {
	config := lab.DefaultConfig()
	config.Name = "demo"
	c := &cobra.Command{
		Use:   "demo",
		Short: "Create a lab, apply the examples, and check all answers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Run(cmd.Context(), cmd.OutOrStdout(), config)
		},
	}
	addLabFlags(c.Flags(), &config)
	config.ClientSeesClusterIPs = true // it asks from everywhere
	return c
}

func labEchoCommand() *cobra.Command {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "localhost"
	}
	var ports []string
	c := &cobra.Command{
		Use:   "echo",
		Short: "Answer like the lab's pods: name and client address over HTTP, TCP, UDP",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list []echo.Port
			for _, text := range ports {
				p, err := echoPort(text)
				if err != nil {
					return err
				}
				list = append(list, p)
			}
			s, err := echo.Start(hostname, list, func(open func() error) error { return open() })
			if err != nil {
				return err
			}
			<-cmd.Context().Done()
			return s.Close()
		},
	}
	c.Flags().StringVar(&hostname, "name", hostname, "name to answer with")
	c.Flags().Lookup("name").DefValue = "the host's name"
	c.Flags().StringSliceVar(&ports, "port", []string{"8080"}, "port to answer on, as 80, 80/TCP, 53/UDP or 9/SCTP; may be repeated")
	return c
}

func echoPort(text string) (echo.Port, error) {
	number, protocol, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return echo.Port{}, fmt.Errorf("--port: %q is not a port such as 80 or 53/UDP", text)
	}
	return echo.Port{Number: uint16(n), Protocol: strings.ToUpper(cmp.Or(protocol, "TCP"))}, nil
}
