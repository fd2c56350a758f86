package conntrack

import (
	"os"
	"testing"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
)

// TestNotLoose: planes that translate here say that they can't reset connections, where
// connection tracking doesn't take their packets for new ones.
func TestNotLoose(t *testing.T) {
	ns, err := netns.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	for setting, want := range map[string]int{"0": 1, "1": 0} {
		var list []kernel.Unsupported
		if err := ns.Do(func() error {
			if err := os.WriteFile(looseSetting, []byte(setting), 0); err != nil {
				return err
			}
			list = Unsupported()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(list) != want {
			t.Errorf("nf_conntrack_tcp_loose=%s: %v", setting, list)
		}
	}
}
