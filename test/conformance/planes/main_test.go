package planes

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/fairway-net/fairway/dataplane/userspace"
	"github.com/fairway-net/fairway/internal/cgroupsock"
)

// TestMain lets the test binary be a plane's process, too, and the one that makes sockets
// in the node's cgroup.
func TestMain(m *testing.M) {
	userspace.Main()  // returns unless this process is a relay
	cgroupsock.Main() // returns unless this process makes sockets
	if kind := os.Getenv(KindEnv); kind != "" {
		if err := Serve(kind, os.Getenv(StateDirEnv), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := playSideBySide(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// atOnce is how many tests run at a time, unless one says otherwise. They wait
// more than they work, and some for the virtual machine, so it has little to do
// with the number of processors.
const atOnce = 8

func playSideBySide() error {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if said {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(atOnce))
}
