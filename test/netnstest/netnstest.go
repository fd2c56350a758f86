// Package netnstest gives tests network namespaces of their own.
package netnstest

import (
	"testing"

	"github.com/fairway-net/fairway/internal/netns"
)

// New makes a network namespace, which is closed when the test ends. It takes root.
func New(t testing.TB) *netns.NS {
	t.Helper()
	ns, err := netns.Anonymous()
	if err != nil {
		t.Fatalf("make a network namespace, which takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}
