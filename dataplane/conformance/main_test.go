package conformance

import (
	"fmt"
	"os"
	"testing"
)

// TestMain lets the test binary be a plane's process, too.
func TestMain(m *testing.M) {
	if kind := os.Getenv(KindEnv); kind != "" {
		if err := Serve(kind, os.Getenv(StateDirEnv), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
