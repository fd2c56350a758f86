package packet

import (
	"fmt"
	"os"
)

// localPorts says which ports the kernel gives sockets by itself
// (Documentation/networking/ip-sysctl.rst); it holds for IPv6, too.
const localPorts = "/proc/sys/net/ipv4/ip_local_port_range"

// nodePorts are those that Kubernetes gives Services unless told otherwise.
var nodePorts = [2]int{30000, 32767}

// masqueradePorts finds a range of ports for masqueraded connections: the
// largest one of which sockets get none by themselves.
func masqueradePorts() (low, count uint16, err error) {
	text, err := os.ReadFile(localPorts)
	if err != nil {
		return 0, 0, fmt.Errorf("read the range of local ports: %w", err)
	}
	var local [2]int
	if _, err := fmt.Sscan(string(text), &local[0], &local[1]); err != nil {
		return 0, 0, fmt.Errorf("read %s: %w", localPorts, err)
	}
	low, count = freePorts(local)
	return low, count, nil
}

// freePorts is the largest range of unprivileged ports outside the given one
// and that of node ports. If the given one leaves nearly none, it is all: ports
// in use are passed over anyway (see bpf/source.h).
func freePorts(local [2]int) (low, count uint16) {
	const first, last, least = 1024, 65535, 1024
	best := [2]int{first, first - 1}
	for start := first; start <= last; start++ {
		end := start
		for end <= last && !within(end, local) && !within(end, nodePorts) {
			end++
		}
		if end-start > best[1]-best[0]+1 {
			best = [2]int{start, end - 1}
		}
		start = end
	}
	if best[1]-best[0]+1 < least {
		best = [2]int{first, last}
	}
	return uint16(best[0]), uint16(best[1] - best[0] + 1)
}

func within(port int, r [2]int) bool { return r[0] <= port && port <= r[1] }
