package tuning

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestForwardKeepsAdvertisedRoutes: interfaces that learn routes from
// advertisements go on doing so, and what is set already isn't touched.
func TestForwardKeepsAdvertisedRoutes(t *testing.T) {
	root := t.TempDir()
	for path, value := range map[string]string{
		"ipv4/ip_forward": "0\n", "ipv6/conf/all/forwarding": "0\n",
		"ipv6/conf/eth0/accept_ra": "1\n", "ipv6/conf/eth1/accept_ra": "0\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	changed, err := forward(root, true)
	want := []string{"net/ipv4/ip_forward=1", "net/ipv6/conf/eth0/accept_ra=2", "net/ipv6/conf/all/forwarding=1"}
	if err != nil || !slices.Equal(changed, want) {
		t.Errorf("changed %v, %v, want %v", changed, err, want)
	}
	if changed, err := forward(root, true); err != nil || len(changed) > 0 {
		t.Errorf("the second time: %v, %v", changed, err)
	}
}
