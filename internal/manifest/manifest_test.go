package manifest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/compile"
)

const cluster = `
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: web}
  spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ports: [{port: 80, targetPort: 8080}]}
- apiVersion: v1
  kind: Endpoints
  metadata: {name: web}
  subsets:
  - addresses: [{ip: 10.244.1.2}, {ip: "fd00::2"}]
    notReadyAddresses: [{ip: 10.244.1.3}]
    ports: [{port: 8080}]
- apiVersion: v1
  kind: Node
  metadata: {name: node1, labels: {topology.kubernetes.io/zone: a}}
  spec: {podCIDRs: [10.244.1.0/24]}
  status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: Hostname, address: node1}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other, namespace: x}
`

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRead(t *testing.T) {
	set, err := Read(write(t, cluster))
	if err != nil {
		t.Fatal(err)
	}
	node, err := set.Node("node1")
	if err != nil || node.Zone != "a" || len(node.Addresses) != 1 || len(node.Primary) != 1 || len(node.PodCIDRs) != 1 {
		t.Errorf("node %+v, %v", node, err)
	}
	if _, err := set.Node("node2"); err == nil || !strings.Contains(err.Error(), `"node2"`) {
		t.Errorf("a Node that isn't there: %v", err)
	}
	if !slices.Equal(set.Ignored, []string{"ConfigMap x/other"}) {
		t.Errorf("ignored %v", set.Ignored)
	}
	// The endpoints arrive: the ready one of the Service's family, and no other.
	table := compile.All(compile.Config{}, node, set.Services, set.Slices)
	for p := range table.Pools() {
		if !p.ID.IPv6 && !p.ID.Local && (len(p.Backends) != 1 || p.Backends[0].AddrPort().String() != "10.244.1.2:8080") {
			t.Errorf("pool %s: %+v", p.ID, p.Backends)
		}
	}
	if table.NumFrontends() != 1 {
		t.Errorf("%d frontends, want 1:\n%s", table.NumFrontends(), table)
	}
}

func TestReadRefuses(t *testing.T) {
	if _, err := Read(write(t, "apiVersion: v1\nkind: Service\nmetadata: {name: [}\n")); err == nil || !strings.Contains(err.Error(), "cluster.yaml") {
		t.Errorf("broken YAML: %v", err)
	}
	if _, err := Read("/nonexistent.yaml"); err == nil || !strings.Contains(err.Error(), "/nonexistent.yaml") {
		t.Errorf("no file: %v", err)
	}
}
