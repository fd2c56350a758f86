// Command coredns is CoreDNS with the plugins that Gateway API's conformance
// suite needs: the program that stands for its image in the lab. It takes the
// flags of CoreDNS's own.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/whoami"
)

func main() {
	dnsserver.Directives = []string{"errors", "log", "forward", "whoami"}
	coremain.Run()
}
