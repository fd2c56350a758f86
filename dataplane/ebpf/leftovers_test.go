package ebpf

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/internal/kernel"
)

// TestUnfinishedAttachment has a plane find the links of a process that was killed
// before it gave them their names.
func TestUnfinishedAttachment(t *testing.T) {
	inNode(t, func(t *testing.T, options kernel.Options) {
		ctx, want := context.Background(), webTable(3, 1)
		killed := newPlane(t, options)
		if _, err := killed.Apply(ctx, want, kernel.VerifyNothing); err != nil {
			t.Fatal(err)
		}
		if err := killed.Close(); err != nil {
			t.Fatal(err)
		}
		links, err := filepath.Glob(filepath.Join(killed.dir, "*-*"))
		if err != nil || len(links) != len(sock.Hooks) {
			t.Fatalf("links: %v, %v", links, err)
		}
		for _, l := range links {
			if err := os.Rename(l, l+"-new"); err != nil {
				t.Fatal(err)
			}
		}
		p := newPlane(t, options)
		for range 2 {
			if _, err := p.Apply(ctx, want, kernel.VerifyAll); err != nil {
				t.Fatal(err)
			}
		}
		agrees(t, p, want)
		if links, err = filepath.Glob(filepath.Join(p.dir, "*-*")); err != nil || len(links) != len(sock.Hooks) || strings.HasSuffix(links[0], "-new") {
			t.Errorf("links: %v, %v", links, err)
		}
		if err := p.Remove(ctx, kernel.EndConnections); err != nil {
			t.Fatal(err)
		}
	})
}
