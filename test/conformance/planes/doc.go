// Package planes holds all data planes to one specification with real
// packets. A case is a text file in testdata/cases: a script of steps, and the
// manifests that it names. What a case expects is written in it, must be what
// model.Table.Decide says of the compiled manifests, and must be what packets
// between network namespaces meet.
//
// # Running
//
//	go test ./test/conformance/planes                                        # all
//	go test ./test/conformance/planes -run TestSpecification                 # cases against Decide: no root, no packets
//	go test ./test/conformance/planes -run TestPlanes/nftables               # one plane
//	go test ./test/conformance/planes -run TestPlanes/nftables/clusterip -v  # and the cases with this in their names
//	go test ./test/conformance/planes -run TestSCTP/nftables           # the cases about SCTP
//	go test ./test/conformance/planes -run TestLegacy                  # iptables, the legacy variant
//	go test ./test/conformance/planes -run TestSites/vxlan/ebpf         # one site, one plane
//	go test ./test/conformance/planes -run TestSwitch                  # every plane changed for every other, in two tours
//	FAIRWAY_SWITCH=pairs go test ./test/conformance/planes -run TestSwitch/iptables-to-ebpf    # each change by itself
//	go test -tags kernels ./test/conformance/planes -run TestKernels   # Debian's kernels, from 5.10 to the newest
//	FAIRWAY_VM=1 FAIRWAY_VM_KERNEL=bullseye go test -tags kernels ./test/conformance/planes -run TestPlanes/ebpf   # all of them
//	FAIRWAY_KUBERNETES=$PWD/bin/kubernetes/1.36.3 go test ./test/conformance/planes -run TestKubeProxy  # the real kube-proxy
//	FAIRWAY_FUZZ=2m FAIRWAY_FUZZ_SEED=7 go test ./test/conformance/planes -run TestFuzzPlanes/nftables
//
// Each case is played twice: as it is written, and, under its name with "-swapped"
// behind it, with IPv4 and IPv6 changed for each other (families.go). So a case
// says what it is about in one family, and in both only where both take part. The
// virtual machine, where everything takes ten times as long, plays some of those as written
// (casesInMachine); with -tags ipvs it plays all.
//
// A case that fails prints the plane's objects. Cases play side by side, each on
// a topology of its own; -parallel 1 has them play one after the other.
//
// # The topology
//
// The plane works on "node", in a process of its own:
//
//	a       10.244.1.2    fd00:10:244:1::2   pod on node
//	b       10.244.1.3    fd00:10:244:1::3   pod on node
//	c       10.244.2.2    fd00:10:244:2::2   pod on peer
//	d       10.244.2.3    fd00:10:244:2::3   pod on peer
//	node    172.30.0.11   fd00:172:30::b     the node under test, in zone-1
//	peer    172.30.0.12   fd00:172:30::c     another node, in zone-2, without a plane
//	client  172.30.100.1  fd00:172:30::1:1   outside; routes to Services through node
//
// Each of them answers on the ports 8080, 8081 and 9090, in TCP, UDP and SCTP,
// with its name, its port and the client address that it sees. Services are in
// 10.96.0.0/16 and fd00:10:96::/112; client and peer also reach 203.0.113.0/24
// and 2001:db8::/32 (load-balancer and external addresses) through node.
//
// Backends c and d answer those pods directly that reach them with their source
// kept; so probes from c and d to Services make sense only where the backend is
// on node.
//
// The node, as a backend of others, may see the client's address although
// masquerading is said: what goes to its own processes doesn't pass the hook
// where sources are replaced, and needn't, since the answers come by anyway.
//
// # Steps
//
//	config KEY=VALUE...              flags: cluster-cidr, pod-interfaces, pods-of-node, service-cidr,
//	                                 nodeport-addresses, localhost-nodeports, masquerade-all, direct-return
//	node zone=ZONE                   the node's zone
//	apply FILE...                    Services and EndpointSlices, in one change
//	endpoints NS/SERVICE PORTS [PARTY[=STATE]...]
//	                                 an EndpointSlice, NS/SERVICE-4 or -6, of these and no others;
//	                                 PORTS as 8080 or http:8080,dns:9090/udp;
//	                                 PARTY as a, or a6 for its IPv6 address;
//	                                 STATE unready, serving (though terminating) or terminating
//	                                 (NS/SERVICE-6 PORTS: an IPv6 slice without endpoints)
//	delete service|endpointslice NS/NAME
//	probe FROM PROTO DEST [x N] -> EXPECTATION
//	                                 N: connections at least; there are always some;
//	                                 DEST as 10.96.0.1:80, [fd00:10:96::1]:80, node:30080, node6:30080, localhost:30080
//	                                 (FROM may be client:21000 in all of these, for a client's port of its own)
//	flow NAME FROM PROTO DEST -> EXPECTATION
//	                                 opens a connection (for UDP: a socket) and keeps it
//	forgets SECONDS[+MORE] FROM PROTO DEST -> EXPECTATION
//	                                 session affinity: connections reach the same backend, and another one after a pause of the
//	                                 timeout, and of so much more as the plane may remember; MORE is 0 if not said
//	send NAME -> EXPECTATION         says something over it; "same": to the same backend, which sees the same client
//	close NAME
//	invalid NAME                     has the backend of a TCP flow send a segment from far outside the window, which
//	                                 conntrack calls INVALID, and a later one answered by the same
//	load NAME FROM PROTO DEST        makes one connection after the other, while the steps go on ...
//	unload NAME                      ... until here; every one must have been answered
//	pair                             starts the plane on peer too, with what it has to do there; kill, start and restart mean both then
//	via node|peer                    packets of the client for Services come in there from now on, those of its flows, too
//	alike FROM PROTO DEST DEST       many clients ask both, and the same backend answers each of them both times
//	bypasses NAME                       says something over the flow, of which no answer passes the node
//	kill, start, restart             kill -9 of the plane's process; while it's killed, changes are only compiled
//	disturb                          does what the site has happen while connections are under way (TestSites only)
//	large NAME BYTES                 says a line so long over a TCP flow, and gets the answer
//	switch                           to another plane, as an agent started with another mode does (TestSwitch only)
//	resync                           has the plane compare with the kernel and repair
//	verify                           what Objects finds is what Render wants
//	run COMMAND ARGUMENT...          in the node's namespace; iptables and ip6tables are those of the plane's variant
//	repaired                         the plane notices by itself that its objects were changed, and is told to repair
//
// # Expectations
//
//	a b c                            repeated connections reach each of these, and no other
//	a:8080 a:9090                    with ports, where a has several
//	one of a b c                     ... reach always the same of these (session affinity)
//	some of a b c                    ... reach none but these
//	..., source kept                 the backend sees the client's address (a pod that reaches itself doesn't)
//	..., masqueraded                 the backend sees an address of the node
//	refused                          at once: a RST for TCP, an ICMP error for UDP
//	silent                           no answer whatever
//	pass                             not Service traffic: meets what it would without a plane
//	same, reset                      only of send
//
// # Sites
//
// TestSites plays some of the cases, and those in testdata/sites, where nodes are wired as
// real ones are: each file testdata/sites/NAME.site says what is changed of the topology.
//
//	needs FEATURE...                 of the kernel, as test/vm names them
//	every                            plays in every run of the tests, and not only in make check NAME=sites
//	plays CASE...                    is about these cases of the plain topology, too
//	without IPv4|IPv6                the node has no addresses of that family: steps with such a destination are left out
//	bridged HOST...                  these pods are ports of one bridge
//	oneway                           which sends no frame back where it came from: steps in which a pod reaches itself are
//	                                 left out in the modes that translate in netfilter
//	ahead                            others' programs are before the plane's, of which ebpf mode tells: verify is left out there
//	source ADDRESS                   is the node's, too, where something is masqueraded
//	on HOST COMMAND...               runs a command; HOST is one of the topology or "underlay", {HOST} its namespace's name
//	lower HOST, upper HOST           eth0 is called port0 and gives its addresses and routes to a new eth0, made in between
//	sysctl HOST PATH VALUE           sets a kernel setting
//	capture HOST INTERFACE           listens to all packets, as tcpdump does
//	program HOST INTERFACE ingress|egress first|last    attaches a program by tcx that lets all packets go on
//	drop4 HOST                       takes the IPv4 addresses away
//	fill N                           fills the node's conntrack table until N entries are free
//	during STEP                      is done by the step disturb
//
// # Conditions
//
// [plane NAME] and [not plane NAME] before a step limit it to planes. [needs FEATURE], with
// a kernel.Feature ("weights", "scheduler=rr"), leaves it out for planes that declare
// to lack it, and lists it as an exception. What a plane lacks of client
// addresses, silent drops and SCTP is taken care of without being written.
package planes
