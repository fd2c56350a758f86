package gateway

import (
	"os"
	"os/exec"

	"k8s.io/apimachinery/pkg/types"
)

// OwnProcess is this program once more, whatever is on disk by now, for one
// Gateway.
func OwnProcess(gateway types.NamespacedName) *exec.Cmd {
	c := exec.Command("/proc/self/exe", append(os.Args[1:], "--only", gateway.String())...)
	c.Args[0] = os.Args[0]
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c
}
