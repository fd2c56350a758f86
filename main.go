// Command fairway is Kubernetes Services as one binary: the Service API, the
// controllers behind it, the node's data plane and the lab to try it in.
package main

import (
	"os"

	"github.com/fairway-net/fairway/cmd"
	"github.com/fairway-net/fairway/dataplane/userspace"
	"github.com/fairway-net/fairway/internal/cgroupsock"
	"github.com/fairway-net/fairway/internal/legacytrace"
)

func main() {
	userspace.Main()   // returns unless this process is a relay
	cgroupsock.Main()  // returns unless this process makes sockets
	legacytrace.Main() // returns unless this process keeps a setting for traces
	os.Exit(cmd.Main())
}
