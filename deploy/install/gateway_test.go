package install

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"
)

// TestGateway: beside an agent, Gateways are served by a unit of their own once there
// is a credential for it. A newer version takes the old one's place without a stop, and
// all of it goes with the agent.
func TestGateway(t *testing.T) {
	m := newMachine(t)
	m.options.Role, m.options.Gateway = "agent", []string{"--engine=haproxy"}
	before := m.tree()
	m.install("--kubeconfig=/etc/fairway/agent")
	m.expectTold("daemon-reload", "enable fairway-agent.service", "restart fairway-agent.service")
	if !strings.Contains(m.said.String(), credential+" is there") {
		t.Errorf("nobody says that the credential is missing: %s", m.said.String())
	}
	tree := m.tree()
	if !strings.Contains(tree[gatewayUnit], "fairway gateway") || !strings.HasSuffix(tree[gatewaySettings], "\nOPTIONS=\"--engine=haproxy\"\n") {
		t.Errorf("the unit is %q with %q", tree[gatewayUnit], tree[gatewaySettings])
	}

	m.options.Gateway, m.options.Credential = nil, filepath.Join(t.TempDir(), "kubeconfig")
	m.write(m.options.Credential, "a credential")
	m.install()
	m.expectTold("daemon-reload", "enable fairway-agent.service", "restart fairway-agent.service", "enable fairway-gateway.service", "reload-or-restart fairway-gateway.service")
	if tree := m.tree(); tree[credential] != "a credential" || !strings.Contains(tree[gatewaySettings], "haproxy") {
		t.Errorf("credential %q, options %q", tree[credential], tree[gatewaySettings])
	}
	m.uninstall(true)
	m.expectTold("disable --now fairway-agent.service", "disable --now fairway-gateway.service", "cleanup", "daemon-reload")
	if after := m.tree(); !maps.Equal(before, after) {
		t.Errorf("%v\nis left, where %v was", after, before)
	}
}

// TestGatewayAlone: a machine may do nothing but serve Gateways.
func TestGatewayAlone(t *testing.T) {
	m := newMachine(t)
	before := m.tree()
	m.options.Role, m.options.Credential = "gateway", filepath.Join(t.TempDir(), "kubeconfig")
	m.write(m.options.Credential, "a credential")
	m.install("--access-log=true")
	m.expectTold("daemon-reload", "enable fairway-gateway.service", "reload-or-restart fairway-gateway.service")
	m.uninstall(true)
	m.expectTold("disable --now fairway-gateway.service", "cleanup", "daemon-reload")
	if after := m.tree(); !maps.Equal(before, after) {
		t.Errorf("%v\nis left, where %v was", after, before)
	}
}
