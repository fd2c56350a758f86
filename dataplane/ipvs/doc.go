// Package ipvs is the data plane on IPVS, the kernel's own load balancer, as
// operators know it from kube-proxy's ipvs mode: addresses of Services on the
// dummy interface kube-ipvs0, a virtual server for every frontend, ipsets
// named KUBE-CLUSTER-IP, KUBE-LOOP-BACK and so on, and a number of iptables
// rules that does not depend on the number of Services.
//
// # Who decides what
//
// IPVS has one virtual server per address, port and protocol, while a frontend
// has a route for each of three origins. The virtual server of the key has the
// pool of the route from outside. Where another origin differs, an ipset per
// origin (KUBE-FROM-POD, KUBE-FROM-NODE, KUBE-FROM-OUTSIDE) holds a firewall
// mark for the key, which one rule per origin puts on first packets before
// IPVS sees them:
//
//   - the masquerade bit: masquerade (where the sets that kube-proxy has for
//     that, KUBE-NODE-PORT-TCP and the like, don't say it already);
//   - a mark of our own range: go to the virtual server of that mark, which
//     has the other pool;
//   - refuse, or drop: the pool is empty.
//
// In the ranges of Services, what no frontend serves is refused. An external
// address is local to a node that serves one of its ports; packets to others,
// which the model lets pass, have nowhere to go and are dropped.
//
// First packets of this node's own processes meet IPVS before they meet the
// filter table. Those to be refused are turned away to a port that nothing
// serves (nat, OUTPUT) and refused there; the client sees a reset at once.
//
// # Session affinity
//
// IPVS remembers clients per virtual server, the model per pool. Pools with
// affinity that name no scheduler use maglev hashing of the client's address
// for the first choice, so that all entrances of a Service agree, and IPVS
// persistence keeps that choice when backends come and go. Virtual servers of
// marks can't be persistent (IPVS would not translate their port): for them
// the hash is all there is, and a client may move when backends change.
//
// # One client port, several frontends
//
// IPVS finds the connection that a backend's answer belongs to by the client's
// address and port and the backend's (ip_vs_conn_out_get). Where a client uses
// one port of its own for two frontends at once, and both lead to the same
// backend, answers go the way of the connection that was opened last, and the
// other one is silent. kube-proxy's ipvs mode has the same; nothing outside the
// kernel can mend it. Of a client that opens connections all the time to two
// frontends of one Service, one in ten thousand may meet it.
//
// Answers to this node's own clients get the Service's address late (in INPUT). Early
// demultiplexing is switched off, or they would be taken for those of a direct
// connection to the same backend from the same port (net.ipv4.tcp_early_demux).
//
// # Changes without loss
//
// The scheduler of a virtual server is changed while new connections make a
// bypass through a server of a mark, because IPVS refuses them meanwhile. When
// the plane is removed, established connections are handed over to conntrack's
// NAT. A Service that is deleted leaves its virtual server and address behind,
// refusing new connections, until its TCP connections have ended (under
// OrphansKeep; the set of marks and the address are not among Objects then).
//
// # Leaving backends
//
// A draining backend is a destination of weight 0. So is, under OrphansKeep
// and until OrphanDeadline, a backend that the table does not list any more,
// until IPVS counts no connection to it. Without its destination, the next
// packet of a connection ends it (net.ipv4.vs.expire_nodest_conn): this node
// answers TCP with a reset, and a UDP flow goes to another backend.
package ipvs
