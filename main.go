// Command fairway is Kubernetes Services as one binary: the Service API, the
// controllers behind it, the node's data plane and the lab to try it in.
package main

import (
	"os"

	"github.com/fairway-net/fairway/cmd"
)

func main() {
	os.Exit(cmd.Main())
}
