package ebpf

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/test/vm"
)

// TestProbe: this kernel has what the programs need, as other tests show by
// loading them, and what no kernel has is named.
func TestProbe(t *testing.T) {
	if err := probe(); err != nil {
		t.Error(err)
	}
	sock, err := sock.Programs()
	if err != nil {
		t.Fatal(err)
	}
	n := needsOf(sock)
	if len(n.maps) == 0 || len(n.programs) == 0 || len(n.helpers) == 0 {
		t.Errorf("needs %+v", n)
	}
	n.helpers[helper{ebpf.SchedCLS, asm.FnSkAssign}] = true       // there since 5.7
	n.helpers[helper{ebpf.CGroupSockAddr, asm.FnRedirect}] = true // of SchedCLS only
	var missing *kernel.MissingError
	err = n.missing()
	if !errors.As(err, &missing) || !strings.Contains(missing.What, "FnRedirect") || strings.Contains(missing.What, "FnSkAssign") {
		t.Errorf("missing: %v", err)
	}
}

// TestProbeOnOldKernel: so has the oldest kernel that this mode is for.
func TestProbeOnOldKernel(t *testing.T) {
	vm.On(t, "bullseye", func(t *testing.T) {
		if err := probe(); err != nil {
			t.Error(err)
		}
	})
}
