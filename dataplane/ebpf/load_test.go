package ebpf

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/fairway-net/fairway/dataplane/ebpf/packet"
	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/test/vm"
)

// TestLoad: the verifiers of this kernel and of Debian's take all programs.
func TestLoad(t *testing.T) {
	vm.Also(t, func(t *testing.T) {
		if err := rlimit.RemoveMemlock(); err != nil {
			t.Fatal(err)
		}
		for name, load := range map[string]func() (*ebpf.CollectionSpec, error){"sock": sock.Programs, "tc": packet.Programs} {
			spec, err := load()
			if err != nil {
				t.Fatal(err)
			}
			c, err := ebpf.NewCollection(spec)
			if err != nil {
				t.Fatalf("%s: %+v", name, err)
			}
			logSteps(t, c)
			c.Close()
		}
	})
}

// maxSteps is how many instructions a verifier may look at. It gives up at a
// million, and long before that agents take seconds to start.
const maxSteps = 120_000

// logSteps says how much work the verifier had, as far as the kernel tells.
func logSteps(t *testing.T, c *ebpf.Collection) {
	t.Helper()
	for name, p := range c.Programs {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		if steps, ok := info.VerifiedInstructions(); ok {
			t.Logf("%s: %d instructions verified", name, steps)
			if steps > maxSteps {
				t.Errorf("%s: the verifier looks at %d instructions, of at most %d that it should", name, steps, maxSteps)
			}
		}
	}
}
