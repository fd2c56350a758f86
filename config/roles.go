package config

import (
	"os"
	"strings"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/endpoint/publish"
)

// AgentPort is where agents of machines that joined answer API servers.
const AgentPort = ":10261"

// NewAgent is an agent on its own, in kube-proxy's place.
func NewAgent() *Agent {
	return &Agent{Mode: agent.AutoMode, NodeName: hostname(), Healthz: "0.0.0.0:10256", Metrics: "127.0.0.1:10249", AgentAddress: AgentPort}
}

// newMember is the agent of a machine of a cluster of Fairway's.
func newMember() *Agent {
	a := NewAgent()
	a.DNS, a.Announce, a.Publish = true, true, agent.Publish{Folder: publish.DefaultFolder}
	return a
}

// newUp is the agent beside its API server.
func newUp() *Agent {
	a := newMember()
	a.AgentAddress = ""
	return a
}

// ForMode is an agent of which only one mode's rules are asked: for commands that
// touch nothing.
func ForMode(mode string) *Agent { return &Agent{Mode: mode, NodeName: hostname()} }

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		name = "localhost"
	}
	return strings.ToLower(name)
}
