package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// AccelEnv forces how the machine runs: "tcg" is software emulation, "kvm"
// tries the kernel's virtualisation wherever it might work. "icount" is emulation
// of one processor whose clock is what it has executed: an instruction takes eight
// nanoseconds, so that processor times in it are counts of instructions, whatever
// else the host does.
const AccelEnv = "FAIRWAY_VM_ACCEL"

// accelerator is a way to run the machine.
type accelerator struct {
	name    string
	args    []string
	timeout time.Duration // for booting
}

var (
	// Where it works, it boots in a second; where it doesn't, it may hang.
	kvm = accelerator{"kvm", []string{"-accel", "kvm", "-cpu", "host", "-smp", "2"}, 30 * time.Second}
	// Four seconds on an idle machine, much longer on a busy one.
	emulation = accelerator{"tcg", []string{"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"}, 3 * time.Minute}
	counting  = accelerator{"icount", []string{"-accel", "tcg,thread=single", "-icount", "shift=3", "-cpu", "max", "-smp", "1"}, 10 * time.Minute}
)

// accelerators are the ways to try one after the other, and why the first isn't
// KVM. Emulation always works, and is what counts.
func accelerators(setting string) (ways []accelerator, reason string, err error) {
	switch setting {
	case "tcg":
		return []accelerator{emulation}, AccelEnv + "=tcg", nil
	case "icount":
		return []accelerator{counting}, AccelEnv + "=icount", nil
	case "kvm":
		return []accelerator{kvm, emulation}, "", nil
	case "":
	default:
		return nil, "", fmt.Errorf("%s: %q: must be tcg, icount or kvm", AccelEnv, setting)
	}
	if reason := noKVM("/dev/kvm", "/sys/module"); reason != "" {
		return []accelerator{emulation, emulation}, reason, nil
	}
	return []accelerator{kvm, emulation}, "", nil
}

// noKVM says why KVM need not be tried; "" if it may work. A device alone is
// not enough: without the processor's help (kvm_pvm) an ordinary kernel never
// gets past its first instructions, silently.
func noKVM(device, modules string) string {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err.Error()
	}
	if err := f.Close(); err != nil {
		return err.Error()
	}
	for _, module := range []string{"kvm_intel", "kvm_amd"} {
		_, err := os.Stat(modules + "/" + module)
		if err == nil {
			return ""
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err.Error()
		}
	}
	return "the kernel has neither kvm_intel nor kvm_amd"
}
