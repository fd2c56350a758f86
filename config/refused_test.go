package config

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestRefused: what can't be is refused before anything starts, by the flag's name.
func TestRefused(t *testing.T) {
	for _, argument := range []string{
		"--mode=ipsv", "--iptables-variant=x", "--scheduler=x", "--service-metrics=-1", "--endpoint-metrics=-1", "--sync-period=-1s", "--drain-time=-1s",
		"--cluster-cidr=10.0.0.1", "--service-cidr=x", "--nodeport-addresses=secondary", "--cluster-dns=10.0.0.0/8", "--dns-node-port-clients=x",
	} {
		role := NewAgent()
		flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
		role.Add(flags)
		err := flags.Parse([]string{argument})
		if err == nil {
			_, err = role.Config()
		}
		name, _, _ := strings.Cut(argument, "=")
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", argument, err)
		}
	}
}

// TestEmptyRanges: no range is none, as kube-proxy has it.
func TestEmptyRanges(t *testing.T) {
	role := NewAgent()
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	role.Add(flags)
	if err := flags.Parse([]string{"--cluster-cidr=", "--nodeport-addresses=", "--service-cidr=10.96.0.1/16"}); err != nil {
		t.Fatal(err)
	}
	config, err := role.Config()
	if err != nil || len(config.Compile.Pods.Prefixes) > 0 || config.Compile.NodePorts.Some() || config.Compile.ServiceCIDRs[0].String() != "10.96.0.0/16" {
		t.Errorf("%+v, %v", config.Compile, err)
	}
}
