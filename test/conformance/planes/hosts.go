package planes

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"syscall"

	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/internal/cgroupsock"
	"github.com/fairway-net/fairway/lab/echo"
)

// useCgroup gives the node a cgroup, in which its processes and sockets are.
func (s *Topology) useCgroup() (err error) {
	s.cgroup, err = s.node.Cgroup()
	if errors.Is(err, cgroup.ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	s.sockets, err = cgroupsock.Start(s.cgroup)
	return err
}

// route lets client and peer reach Services through the node, and the client
// pods, as in networks that know the pods' routes.
func (s *Topology) route() error {
	for _, n := range s.lab.Nodes() {
		for i, pods := range n.PodCIDRs {
			if err := s.hosts["client"].Route(pods, n.Addresses[i]); err != nil {
				return err
			}
		}
	}
	return errors.Join(s.reachServices("client", NodeName), s.reachServices(peerName, NodeName))
}

// reachServices has a host's packets for Services go to a node.
func (s *Topology) reachServices(from, by string) error {
	for _, text := range servedRanges {
		to := netip.MustParsePrefix(text)
		if err := s.hosts[from].Route(to, hosts[by].addr(to.Addr())); err != nil {
			return err
		}
	}
	return nil
}

// sysctls keep hosts from learning, when the node passes a packet on to where
// it came from, that there is a shorter way, and from answering only some of
// many packets with ICMP errors. Those of SCTP are there if the kernel has it.
var sysctls = map[string]string{
	"ipv4/conf/all/accept_redirects":  "0",
	"ipv4/conf/eth0/accept_redirects": "0",
	"ipv6/conf/all/accept_redirects":  "0",
	"ipv6/conf/eth0/accept_redirects": "0",
	"ipv4/icmp_ratemask":              "0",
	"ipv6/icmp/ratelimit":             "0",
	// An ICMP error that comes while the socket still sends is forgotten; the
	// next one comes after this.
	"sctp/rto_initial": "500",
	"sctp/rto_min":     "500",
}

func setSysctls() error {
	for path, value := range sysctls {
		err := os.WriteFile("/proc/sys/net/"+path, []byte(value), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// listen starts the host's echo servers: one for each port and protocol, so
// that the answer tells the port.
func (s *Topology) listen(p Host) error {
	for _, port := range echoPorts {
		for _, protocol := range []string{"TCP", "UDP", "SCTP"} {
			if protocol == "SCTP" && !s.SCTP {
				continue
			}
			server, err := echo.Start(answerName(p.Name, port), []echo.Port{{Number: port, Protocol: protocol}}, s.hosts[p.Name].Do)
			if protocol == "SCTP" && errors.Is(err, syscall.EPROTONOSUPPORT) {
				s.SCTP = false
				continue
			}
			if err != nil {
				return fmt.Errorf("start echo at %s: %w", p.Name, err)
			}
			s.servers = append(s.servers, server)
		}
	}
	return nil
}
