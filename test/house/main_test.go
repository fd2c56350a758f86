package house

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs the tests at the module's root, which they are about.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
