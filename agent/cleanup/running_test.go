package cleanup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestProxiesAreFound: those of this network namespace, and no others.
func TestProxiesAreFound(t *testing.T) {
	proc := t.TempDir()
	for pid, p := range map[string]struct{ netns, line string }{
		"self": {"net:[1]", "fairway cleanup"},
		"10":   {"net:[1]", "/usr/local/bin/kube-proxy --config=/var/lib/kube-proxy/config.conf"},
		"11":   {"net:[2]", "kube-proxy"},
		"12":   {"net:[1]", "/usr/local/bin/fairway agent --kubeconfig k"},
		"13":   {"net:[1]", "fairway agent --cleanup"},
		"14":   {"net:[1]", "sleep agent"},
	} {
		if err := os.MkdirAll(filepath.Join(proc, pid, "ns"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(p.netns, filepath.Join(proc, pid, "ns/net")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "cmdline"), []byte(strings.ReplaceAll(p.line, " ", "\x00")+"\x00"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := proxies(proc)
	if want := []proxy{{10, "kube-proxy"}, {12, "fairway agent"}}; err != nil || !slices.Equal(found, want) {
		t.Errorf("found %v, %v; want %v", found, err, want)
	}
}
