package conformance

import (
	"fmt"
	"os"
	"testing"

	"github.com/fairway-net/fairway/dataplane/userspace"
	"github.com/fairway-net/fairway/internal/sockets"
)

// TestMain lets the test binary be a plane's process, too, and the one that makes sockets
// in the node's cgroup.
func TestMain(m *testing.M) {
	userspace.Main() // returns unless this process is a relay
	sockets.Main()   // returns unless this process makes sockets
	if kind := os.Getenv(KindEnv); kind != "" {
		if err := Serve(kind, os.Getenv(StateDirEnv), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
