package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Code names a cause: 101 is written FW101. It is a number, so that no text is taken for a code. Codes
// are never used again for another cause.
type Code uint16

// The causes that the checks know.
const (
	SelectorMatchesNoPod   Code = 101
	NoEndpointReady        Code = 102
	NobodyListens          Code = 103
	UnknownTargetPort      Code = 104
	ListensAtLoopback      Code = 105
	OtherProtocol          Code = 106
	UnfitSlice             Code = 107
	NoSuchPort             Code = 108
	NoSuchService          Code = 109
	NameUnresolved         Code = 110
	ClientAsksOtherDNS     Code = 111
	NetworkPolicyRefuses   Code = 112
	NoLocalEndpointInside  Code = 113
	NoLocalEndpointOutside Code = 114
	ClientOutOfRanges      Code = 115
	LoadBalancerPending    Code = 116
	ForwardPolicyDrops     Code = 117
	ForeignFirewall        Code = 118
	OtherProxy             Code = 119
	MixedIPTables          Code = 120
	AgentBehind            Code = 121
	KernelDiffers          Code = 122
	NotForwarding          Code = 123
	BridgeBypassesFirewall Code = 124
	HairpinLost            Code = 125
	ConntrackFull          Code = 126
	StaleFlow              Code = 127
	LargePacketsLost       Code = 128
	NoWayToNode            Code = 129
	AddressClaimedTwice    Code = 130
	NotAnnounced           Code = 131
	UnservedClass          Code = 132
	UnusedPool             Code = 133
	UplinkBridged          Code = 134
	ObjectRefused          Code = 135
	RulesAhead             Code = 136
	NoXDP                  Code = 137
)

// Cause is an entry of the catalogue.
type Cause struct {
	Code    Code
	Surest  Grade  // that a finding of it may have
	Page    string // of docs, perhaps with the section that explains what is concerned
	Title   string
	Meaning string // what goes wrong, and how it shows
	Fix     string
}

// catalogue has all causes, by code.
var catalogue = []Cause{
	{SelectorMatchesNoPod, Proved, "semantics.md#service",
		"the selector matches no pod",
		"The Service's selector and the labels of the pods in its namespace don't agree, so it has no endpoints and connections are refused.",
		"Correct spec.selector of the Service, or the labels of the pods."},
	{NoEndpointReady, Proved, "semantics.md#who-goes-where",
		"no endpoint is ready",
		"There are endpoints, but none of them is ready: their readiness probe fails, or they are starting or ending. Connections are refused.",
		"Find out why the pods aren't ready: kubectl describe pod."},
	{NobodyListens, Proved, "semantics.md#service",
		"nobody listens at the endpoint's port",
		"A connection straight to the endpoint is refused by the endpoint: the process listens at another port, only at 127.0.0.1, or not at all.",
		"Correct spec.ports[].targetPort, or the port and address that the process listens at."},
	{UnknownTargetPort, Proved, "semantics.md#service",
		"the named target port is unknown",
		"spec.ports[].targetPort is a name that no container port of the selected pods has. Such pods are left out of the endpoints of that port.",
		"Name the container's port, or use its number as targetPort."},
	{ListensAtLoopback, Proved, "semantics.md#service",
		"the program listens at loopback only",
		"Somebody listens at the endpoint's port, but at 127.0.0.1 or ::1, so connections to the pod's address are refused.",
		"Have the program listen at 0.0.0.0 or [::]."},
	{OtherProtocol, Proved, "semantics.md#service",
		"the protocol doesn't match",
		"The Service port and the container's or slice's port have the same number or name with different protocols.",
		"Use the same protocol in spec.ports[].protocol and in the container's port."},
	{UnfitSlice, Proved, "semantics.md#endpointslice",
		"an EndpointSlice doesn't fit the Service",
		"An EndpointSlice of the Service has no port of the Service port's name, or addresses of a family that the Service has no address of. Its endpoints are not used.",
		"Give the slice's port the name of the Service port, and the Service the family of the endpoints."},
	{NoSuchPort, Proved, "semantics.md#service",
		"the Service has no such port",
		"The address belongs to a Service, but not with this port and protocol. Connections are refused.",
		"Use one of the ports in spec.ports."},
	{NoSuchService, Proved, "dns.md#names",
		"there is no such Service",
		"No Service has this name in this namespace. A short name is looked up in the namespace of the pod that asks.",
		"Use NAME.NAMESPACE, or create the Service."},
	{NameUnresolved, Proved, "dns.md",
		"DNS doesn't answer with the Service's address",
		"The cluster's DNS doesn't answer, or not with the address of the Service, while the Service itself may be well.",
		"Look at the pods or agents that serve DNS, and at the Service kube-system/kube-dns: fairway doctor svc/kube-dns -n kube-system."},
	{ClientAsksOtherDNS, Proved, "dns.md#names",
		"the client doesn't ask the cluster's DNS",
		"The pod that asks resolves names elsewhere, or without the search list of its namespace: its dnsPolicy is Default, it is on the host's network without ClusterFirstWithHostNet, or its resolv.conf was replaced.",
		"Set dnsPolicy: ClusterFirst (with hostNetwork: ClusterFirstWithHostNet), or dnsConfig with the cluster's nameserver and search list."},
	{NetworkPolicyRefuses, Likely, "diagnosis.md#what-is-wrong-fairway-doctor",
		"a NetworkPolicy doesn't let clients in",
		"NetworkPolicies select the endpoint's pod, and none of their rules allows the endpoint's port. Policies see the port that the pod listens at, not the Service's.",
		"Allow the targetPort in spec.ingress[].ports of a NetworkPolicy."},
	{NoLocalEndpointInside, Proved, "semantics.md#who-goes-where",
		"internal traffic policy Local, and no local endpoint",
		"internalTrafficPolicy is Local and this node has no ready endpoint of the Service: packets from here are dropped.",
		"Run an endpoint on each node that has clients, or set internalTrafficPolicy to Cluster."},
	{NoLocalEndpointOutside, Proved, "semantics.md#who-goes-where",
		"external traffic policy Local, and no local endpoint",
		"externalTrafficPolicy is Local and this node has no ready endpoint: packets from outside that reach this node are dropped.",
		"Send clients to nodes with endpoints (a load balancer does so by the health check port), or set externalTrafficPolicy to Cluster."},
	{ClientOutOfRanges, Proved, "semantics.md#service",
		"the client is not in the source ranges",
		"spec.loadBalancerSourceRanges lets only some clients in. Packets from others are dropped.",
		"Add the client's address to spec.loadBalancerSourceRanges."},
	{LoadBalancerPending, Proved, "loadbalancer.md#who-gives-addresses",
		"the load balancer has no address",
		"The Service is of type LoadBalancer and nothing has given it an address yet.",
		"Look at the Service's Events. On plain machines, start the server with --load-balancer-range."},
	{ForwardPolicyDrops, Likely, "semantics.md#the-nodes-own-settings",
		"the firewall drops forwarded packets",
		"A base chain at the forward hook drops packets by its policy (Docker and some distributions set it). Packets between pods, nodes and clients die there.",
		"Accept forwarded packets to and from the pod and Service ranges, for example: iptables -P FORWARD ACCEPT."},
	{ForeignFirewall, Proved, "diagnosis.md#what-is-wrong-fairway-doctor",
		"another firewall has rules for forwarded packets",
		"firewalld, ufw, Docker or somebody's own table has rules at the forward hook. They may reject or drop packets of Services.",
		"Allow forwarding between pods and nodes with the program that made the rules, which the finding names with its commands (firewall-cmd, ufw, iptables or nft)."},
	{OtherProxy, Likely, "replacing-kube-proxy.md#trying-it",
		"rules of another Service proxy are there",
		"kube-proxy, or what it left, translates Service addresses too. Whichever comes first wins.",
		"Stop the other proxy; remove what it left: fairway cleanup --kube-proxy."},
	{MixedIPTables, Likely, "replacing-kube-proxy.md#iptables",
		"iptables' legacy and nft variant are mixed",
		"There are rules in both variants. A packet passes both, and a drop in either is final.",
		"Move all rules to one variant: iptables-legacy -F, or update-alternatives --set iptables."},
	{AgentBehind, Proved, "diagnosis.md#asking-the-agents-of-many-nodes",
		"an agent is dead, frozen or behind",
		"The agent of a node doesn't answer, can't reach the API, or has changes that it hasn't put in force. The node forwards by what the agent knew last.",
		"Look at the agent's log (journalctl -u fairway-agent, kubectl logs) and restart it; forwarding goes on meanwhile."},
	{KernelDiffers, Proved, "diagnosis.md#what-the-kernel-holds-fairway-dump",
		"the kernel differs from what it should hold",
		"Kernel objects of the Service are missing or altered, or the agent could not put them in force. Somebody else changes them, or the kernel has no room.",
		"The agent repairs what others change within --sync-period; find who does: fairway dump. What was left out says why."},
	{NotForwarding, Likely, "semantics.md#the-nodes-own-settings",
		"this machine doesn't forward packets",
		"net.ipv4.ip_forward or net.ipv6.conf.all.forwarding is 0: packets from pods and clients that are translated to other machines' endpoints are dropped.",
		"sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"},
	{BridgeBypassesFirewall, Note, "semantics.md#networks-of-nodes",
		"bridged packets don't pass the firewall",
		"net.bridge.bridge-nf-call-iptables is 0 although pods are on a Linux bridge: answers between pods of one node bypass the translation.",
		"sysctl -w net.bridge.bridge-nf-call-iptables=1"},
	{HairpinLost, Proved, "semantics.md#who-goes-where",
		"a pod doesn't reach itself through the Service",
		"The connection goes from the pod through the Service back to the same pod (hairpin), and is lost on the way: by a firewall rule, or a bridge port without hairpin mode.",
		"Let packets back to the interface that they came from: echo 1 > /sys/class/net/PORT/brport/hairpin_mode, or the firewall rule that drops them."},
	{ConntrackFull, Proved, "semantics.md#the-nodes-own-settings",
		"the connection table is full",
		"nf_conntrack holds nearly as many connections as it may. New connections are dropped.",
		"Raise net.netfilter.nf_conntrack_max, or find who opens so many."},
	{StaleFlow, Proved, "semantics.md#connections-that-exist-already",
		"an old connection leads elsewhere",
		"The connection table holds a flow to the Service that leads to no endpoint of it, or that isn't translated. A client that keeps its source port, as many do with UDP, goes on being lost.",
		"Forget the flow: conntrack -D -p PROTOCOL --orig-src CLIENT --orig-dst SERVICE-ADDRESS. Where it comes back, look for another Service proxy (FW119)."},
	{LargePacketsLost, Likely, "semantics.md#networks-of-nodes",
		"large packets are lost",
		"Small packets reach the endpoint's node, packets as large as the route allows don't, and no router says so: connections open and then hang. Tunnels take 50 bytes and more.",
		"Lower the MTU of the pod network by what the tunnel takes, or let ICMP 'fragmentation needed' and 'packet too big' through."},
	{NoWayToNode, Proved, "semantics.md#networks-of-nodes",
		"there is no way to the endpoint's node",
		"This node has no route to the endpoint's address, or a router says that it is unreachable. The Service works where the endpoint is local, and fails elsewhere.",
		"Look at the routes or tunnel of the pod network: ip route get ENDPOINT. If they are well, look at the firewall of the other node: fairway doctor --node NODE."},
	{AddressClaimedTwice, Proved, "semantics.md#service",
		"two Services claim one address",
		"Another, older Service has the same address, port and protocol; only one can be served.",
		"Change the external IP, load balancer address or port of one of them."},
	{NotAnnounced, Proved, "loadbalancer.md#who-announces",
		"no node announces the load balancer's address",
		"The Service has an address from a pool, and no node answers for it on a link or tells routers of it: clients outside get no answer. Nodes announce what an L2Advertisement or BGPAdvertisement of the pool says, if their agents run with --announce.",
		"Make an L2Advertisement or BGPAdvertisement in the pool's namespace that selects the pool, and run agents with --announce: fairway announce status."},
	{UnservedClass, Proved, "ingress.md#what-is-served",
		"nobody serves the class",
		"An Ingress or a Gateway names no class, or one that nobody here serves: nothing listens for it.",
		"Name a class that is there: kubectl get ingressclasses,gatewayclasses. For Ingresses without a class, mark one with ingressclass.kubernetes.io/is-default-class."},
	{UnusedPool, Likely, "loadbalancer.md#who-gives-addresses",
		"the pool is in another namespace",
		"IPAddressPools and advertisements count in one namespace only, metallb-system unless agents and controller are told another. This one has no effect.",
		"Make it in that namespace: kubectl apply -n metallb-system."},
	{UplinkBridged, Note, "semantics.md#networks-of-nodes",
		"the uplink is a bridge that drops what goes on to other nodes",
		"The node's uplink is a port of a bridge, and net.bridge.bridge-nf-call-iptables is 1. In nftables, iptables and ipvs mode (as with kube-proxy) the kernel's bridge takes a packet that is translated to another machine for a frame from port to port, and sends none back to the port that it came from: clients outside reach no endpoint of another node. ebpf and userspace mode aren't concerned.",
		"Have netfilter see the pods' bridge alone, if there is one: ip link set cni0 type bridge nf_call_iptables 1 nf_call_ip6tables 1; then sysctl -w net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0."},
	{ObjectRefused, Proved, "diagnosis.md#before-it-is-applied-fairway-diff",
		"the server would refuse the object",
		"A manifest has an object that the API server doesn't take, or that can't be read: applying it fails, and what it should do isn't done.",
		"Correct the field that the message names."},
	{RulesAhead, Likely, "semantics.md#networks-of-nodes",
		"somebody's rule or program takes packets first",
		"Before packets come to what translates them, a rule of another program drops them, leads them elsewhere or leaves them untracked: one in raw or mangle, in a chain at prerouting or output with a lower priority, or in nat (Docker's published ports). In ebpf mode a program at tc, tcx or XDP sees them first, and may keep them. Everything of Fairway's is as it should be, and the Service doesn't answer, or not to everybody.",
		"Remove the rule, or have it leave the Services' addresses and ports alone: nft -a list ruleset, iptables-save. Programs have to give TCX_NEXT, TC_ACT_UNSPEC or XDP_PASS: bpftool net."},
	{NoXDP, Note, "ebpf.md#in-the-driver-xdp",
		"packets are not forwarded in the driver",
		"The agent was told to forward packets in the drivers of interfaces (--xdp), and can't at this one: its packets are handled as without, at the interface.",
		"Take the other XDP program away, or have the driver offer native XDP; or switch it off: --xdp=off."},
}

// Catalogue lists the causes that the checks can find, by code.
func Catalogue() []Cause { return slices.Clone(catalogue) }

// CauseOf is the cause that a text names, such as FW101 or fw101.
func CauseOf(text string) (Cause, error) {
	var code Code
	if err := code.UnmarshalText([]byte(text)); err != nil {
		return Cause{}, err
	}
	return cause(code), nil
}

// Explain says in full what a code means.
func Explain(text string) (string, error) {
	c, err := CauseOf(text)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: %s\n\n%s\n\nFix: %s\n\nMore: docs, %s\n", c.Code, c.Title, c.Meaning, c.Fix, c.Page), nil
}

// String is how people write a code.
func (c Code) String() string {
	if c == 0 {
		return ""
	}
	return "FW" + strconv.Itoa(int(c))
}

// MarshalText has JSON name codes as people do.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a code of the catalogue, in capitals or not.
func (c *Code) UnmarshalText(text []byte) error {
	for _, one := range catalogue {
		if strings.EqualFold(one.Code.String(), string(text)) {
			*c = one.Code
			return nil
		}
	}
	var codes []string
	for _, one := range catalogue {
		codes = append(codes, one.Code.String())
	}
	return fmt.Errorf("%q is no code: must be one of %s", text, strings.Join(codes, ", "))
}

func cause(code Code) Cause {
	i := slices.IndexFunc(catalogue, func(c Cause) bool { return c.Code == code })
	if i < 0 {
		panic("doctor: the catalogue lacks " + code.String())
	}
	return catalogue[i]
}
