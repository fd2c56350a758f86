package ebpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

func TestLoadTC(t *testing.T) {
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	spec, err := loadTc()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			n := len(ve.Log)
			for _, l := range ve.Log[max(0, n-60):] {
				t.Log(l)
			}
		}
		t.Fatal(err)
	}
	for n, p := range c.Programs {
		i, _ := p.Info()
		v, _ := i.VerifiedInstructions()
		t.Log(n, v)
	}
	c.Close()
}
