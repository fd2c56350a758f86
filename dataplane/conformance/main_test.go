package conformance_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/fairway-net/fairway/dataplane/conformance"
)

// TestMain lets the test binary be a plane's process, too.
func TestMain(m *testing.M) {
	if kind := os.Getenv(conformance.KindEnv); kind != "" {
		if err := conformance.Serve(kind, os.Getenv(conformance.StateDirEnv), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
