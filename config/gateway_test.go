package config

import (
	"testing"

	"github.com/spf13/pflag"
)

// TestGatewayFlags: what can't be is refused before anything starts.
func TestGatewayFlags(t *testing.T) {
	for _, arguments := range [][]string{
		{"--max-connections-per-client=-1"}, {"--engine=envoy"}, {"--trusted-proxy=10.0.0.1"}, {"--drain-timeout=0s"},
		{"--exemplars"}, {"--trace-endpoint=collector"}, {"--trace-endpoint=collector:4317", "--trace-share=2"}, {"--trace-endpoint=collector:4317", "--trace-share=NaN"}, {"--trace-endpoint=collector:4317", "--engine=haproxy"},
	} {
		var role Gateway
		flags := pflag.NewFlagSet("gateway", pflag.ContinueOnError)
		role.Add(flags)
		err := flags.Parse(arguments)
		if err == nil {
			_, err = role.Config()
		}
		if err == nil {
			t.Errorf("%v is taken", arguments)
		}
	}
}
