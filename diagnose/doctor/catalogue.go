package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// Code names a cause. Codes are never used again for another one.
type Code string

// The causes that the checks know.
const (
	SelectorMatchesNoPod   Code = "FW101"
	NoEndpointReady        Code = "FW102"
	NobodyListens          Code = "FW103"
	UnknownTargetPort      Code = "FW104"
	ListensAtLoopback      Code = "FW105"
	OtherProtocol          Code = "FW106"
	UnfitSlice             Code = "FW107"
	NoSuchPort             Code = "FW108"
	NoSuchService          Code = "FW109"
	NameUnresolved         Code = "FW110"
	ClientAsksOtherDNS     Code = "FW111"
	NetworkPolicyRefuses   Code = "FW112"
	NoLocalEndpointInside  Code = "FW113"
	NoLocalEndpointOutside Code = "FW114"
	ClientOutOfRanges      Code = "FW115"
	LoadBalancerPending    Code = "FW116"
	ForwardPolicyDrops     Code = "FW117"
	ForeignFirewall        Code = "FW118"
	OtherProxy             Code = "FW119"
	MixedIPTables          Code = "FW120"
	AgentBehind            Code = "FW121"
	KernelDiffers          Code = "FW122"
	NotForwarding          Code = "FW123"
	BridgeBypassesFirewall Code = "FW124"
	HairpinLost            Code = "FW125"
	ConntrackFull          Code = "FW126"
	StaleFlow              Code = "FW127"
	LargePacketsLost       Code = "FW128"
	NoWayToNode            Code = "FW129"
	AddressClaimedTwice    Code = "FW130"
	NotAnnounced           Code = "FW131"
	UnservedClass          Code = "FW132"
	UnusedPool             Code = "FW133"
	UplinkBridged          Code = "FW134"
)

// Cause is an entry of the catalogue.
type Cause struct {
	Code    Code
	Title   string
	Meaning string // what goes wrong, and how it shows
	Fix     string
}

// Catalogue lists the causes that the checks can find, by code.
func Catalogue() []Cause {
	return []Cause{
		{SelectorMatchesNoPod, "the selector matches no pod", "The Service's selector and the labels of the pods in its namespace don't agree, so it has no endpoints and connections are refused.", "Correct spec.selector of the Service, or the labels of the pods."},
		{NoEndpointReady, "no endpoint is ready", "There are endpoints, but none of them is ready: their readiness probe fails, or they are starting or ending. Connections are refused.", "Find out why the pods aren't ready: kubectl describe pod."},
		{NobodyListens, "nobody listens at the endpoint's port", "A connection straight to the endpoint is refused by the endpoint: the process listens at another port, only at 127.0.0.1, or not at all.", "Correct spec.ports[].targetPort, or the port and address that the process listens at."},
		{UnknownTargetPort, "the named target port is unknown", "spec.ports[].targetPort is a name that no container port of the selected pods has. Such pods are left out of the endpoints of that port.", "Name the container's port, or use its number as targetPort."},
		{ListensAtLoopback, "the program listens at loopback only", "Somebody listens at the endpoint's port, but at 127.0.0.1 or ::1, so connections to the pod's address are refused.", "Have the program listen at 0.0.0.0 or [::]."},
		{OtherProtocol, "the protocol doesn't match", "The Service port and the container's or slice's port have the same number or name with different protocols.", "Use the same protocol in spec.ports[].protocol and in the container's port."},
		{UnfitSlice, "an EndpointSlice doesn't fit the Service", "An EndpointSlice of the Service has no port of the Service port's name, or addresses of a family that the Service has no address of. Its endpoints are not used.", "Give the slice's port the name of the Service port, and the Service the family of the endpoints."},
		{NoSuchPort, "the Service has no such port", "The address belongs to a Service, but not with this port and protocol. Connections are refused.", "Use one of the ports in spec.ports."},
		{NoSuchService, "there is no such Service", "No Service has this name in this namespace. A short name is looked up in the namespace of the pod that asks.", "Use NAME.NAMESPACE, or create the Service."},
		{NameUnresolved, "DNS doesn't answer with the Service's address", "The cluster's DNS doesn't answer, or not with the address of the Service, while the Service itself may be well.", "Look at the pods or agents that serve DNS, and at the Service kube-system/kube-dns: fairway doctor svc/kube-dns -n kube-system."},
		{ClientAsksOtherDNS, "the client doesn't ask the cluster's DNS", "The pod that asks resolves names elsewhere, or without the search list of its namespace: its dnsPolicy is Default, it is on the host's network without ClusterFirstWithHostNet, or its resolv.conf was replaced.", "Set dnsPolicy: ClusterFirst (with hostNetwork: ClusterFirstWithHostNet), or dnsConfig with the cluster's nameserver and search list."},
		{NetworkPolicyRefuses, "a NetworkPolicy doesn't let clients in", "NetworkPolicies select the endpoint's pod, and none of their rules allows the endpoint's port. Policies see the port that the pod listens at, not the Service's.", "Allow the targetPort in spec.ingress[].ports of a NetworkPolicy."},
		{NoLocalEndpointInside, "internal traffic policy Local, and no local endpoint", "internalTrafficPolicy is Local and this node has no ready endpoint of the Service: packets from here are dropped.", "Run an endpoint on each node that has clients, or set internalTrafficPolicy to Cluster."},
		{NoLocalEndpointOutside, "external traffic policy Local, and no local endpoint", "externalTrafficPolicy is Local and this node has no ready endpoint: packets from outside that reach this node are dropped.", "Send clients to nodes with endpoints (a load balancer does so by the health check port), or set externalTrafficPolicy to Cluster."},
		{ClientOutOfRanges, "the client is not in the source ranges", "spec.loadBalancerSourceRanges lets only some clients in. Packets from others are dropped.", "Add the client's address to spec.loadBalancerSourceRanges."},
		{LoadBalancerPending, "the load balancer has no address", "The Service is of type LoadBalancer and nothing has given it an address yet.", "Look at the Service's Events. On plain machines, start the server with --load-balancer-range."},
		{ForwardPolicyDrops, "the firewall drops forwarded packets", "A base chain at the forward hook drops packets by its policy (Docker and some distributions set it). Packets between pods, nodes and clients die there.", "Accept forwarded packets to and from the pod and Service ranges, for example: iptables -P FORWARD ACCEPT."},
		{ForeignFirewall, "another firewall has rules for forwarded packets", "firewalld, ufw, Docker or somebody's own table has rules at the forward hook. They may reject or drop packets of Services.", "Allow forwarding between pods and nodes with the program that made the rules, which the finding names with its commands (firewall-cmd, ufw, iptables or nft)."},
		{OtherProxy, "rules of another Service proxy are there", "kube-proxy, or what it left, translates Service addresses too. Whichever comes first wins.", "Stop the other proxy; remove what it left: fairway cleanup --kube-proxy."},
		{MixedIPTables, "iptables' legacy and nft variant are mixed", "There are rules in both variants. A packet passes both, and a drop in either is final.", "Move all rules to one variant: iptables-legacy -F, or update-alternatives --set iptables."},
		{AgentBehind, "an agent is dead, frozen or behind", "The agent of a node doesn't answer, can't reach the API, or has changes that it hasn't put in force. The node forwards by what the agent knew last.", "Look at the agent's log (journalctl -u fairway-agent, kubectl logs) and restart it; forwarding goes on meanwhile."},
		{KernelDiffers, "the kernel differs from what it should hold", "Kernel objects of the Service are missing or altered, or the agent could not put them in force. Somebody else changes them, or the kernel has no room.", "The agent repairs what others change within --sync-period; find who does: fairway dump. What was left out says why."},
		{NotForwarding, "this machine doesn't forward packets", "net.ipv4.ip_forward or net.ipv6.conf.all.forwarding is 0: packets from pods and clients that are translated to other machines' endpoints are dropped.", "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"},
		{BridgeBypassesFirewall, "bridged packets don't pass the firewall", "net.bridge.bridge-nf-call-iptables is 0 although pods are on a Linux bridge: answers between pods of one node bypass the translation.", "sysctl -w net.bridge.bridge-nf-call-iptables=1"},
		{HairpinLost, "a pod doesn't reach itself through the Service", "The connection goes from the pod through the Service back to the same pod (hairpin), and is lost on the way: by a firewall rule, or a bridge port without hairpin mode.", "Let packets back to the interface that they came from: echo 1 > /sys/class/net/PORT/brport/hairpin_mode, or the firewall rule that drops them."},
		{ConntrackFull, "the connection table is full", "nf_conntrack holds nearly as many connections as it may. New connections are dropped.", "Raise net.netfilter.nf_conntrack_max, or find who opens so many."},
		{StaleFlow, "an old connection leads elsewhere", "The connection table holds a flow to the Service that leads to no endpoint of it, or that isn't translated. A client that keeps its source port, as many do with UDP, goes on being lost.", "Forget the flow: conntrack -D -p PROTOCOL --orig-src CLIENT --orig-dst SERVICE-ADDRESS. Where it comes back, look for another Service proxy (FW119)."},
		{LargePacketsLost, "large packets are lost", "Small packets reach the endpoint's node, packets as large as the route allows don't, and no router says so: connections open and then hang. Tunnels take 50 bytes and more.", "Lower the MTU of the pod network by what the tunnel takes, or let ICMP 'fragmentation needed' and 'packet too big' through."},
		{NoWayToNode, "there is no way to the endpoint's node", "This node has no route to the endpoint's address, or a router says that it is unreachable. The Service works where the endpoint is local, and fails elsewhere.", "Look at the routes or tunnel of the pod network: ip route get ENDPOINT. If they are well, look at the firewall of the other node: fairway doctor --node NODE."},
		{AddressClaimedTwice, "two Services claim one address", "Another, older Service has the same address, port and protocol; only one can be served.", "Change the external IP, load balancer address or port of one of them."},
		{NotAnnounced, "no node announces the load balancer's address", "The Service has an address from a pool, and no node answers for it on a link or tells routers of it: clients outside get no answer. Nodes announce what an L2Advertisement or BGPAdvertisement of the pool says, if their agents run with --announce.", "Make an L2Advertisement or BGPAdvertisement in the pool's namespace that selects the pool, and run agents with --announce: fairway announce status."},
		{UnservedClass, "nobody serves the class", "An Ingress or a Gateway names no class, or one that nobody here serves: nothing listens for it.", "Name a class that is there: kubectl get ingressclasses,gatewayclasses. For Ingresses without a class, mark one with ingressclass.kubernetes.io/is-default-class."},
		{UnusedPool, "the pool is in another namespace", "IPAddressPools and advertisements count in one namespace only, metallb-system unless agents and controller are told another. This one has no effect.", "Make it in that namespace: kubectl apply -n metallb-system."},
		{UplinkBridged, "the uplink is a bridge that drops what goes on to other nodes", "The node's uplink is a port of a bridge, and net.bridge.bridge-nf-call-iptables is 1. In nftables, iptables and ipvs mode (as with kube-proxy) the kernel's bridge takes a packet that is translated to another machine for a frame from port to port, and sends none back to the port that it came from: clients outside reach no endpoint of another node. ebpf and userspace mode aren't concerned.", "Have netfilter see the pods' bridge alone, if there is one: ip link set cni0 type bridge nf_call_iptables 1 nf_call_ip6tables 1; then sysctl -w net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0."},
	}
}

// Explain says in full what a code means.
func Explain(code string) (string, error) {
	list := Catalogue()
	i := slices.IndexFunc(list, func(c Cause) bool { return strings.EqualFold(string(c.Code), code) })
	if i < 0 {
		var codes []string
		for _, c := range list {
			codes = append(codes, string(c.Code))
		}
		return "", fmt.Errorf("%q is no code: must be one of %s", code, strings.Join(codes, ", "))
	}
	c := list[i]
	return fmt.Sprintf("%s: %s\n\n%s\n\nFix: %s\n", c.Code, c.Title, c.Meaning, c.Fix), nil
}

func cause(code Code) Cause {
	list := Catalogue()
	i := slices.IndexFunc(list, func(c Cause) bool { return c.Code == code })
	if i < 0 {
		panic("doctor: the catalogue lacks " + string(code))
	}
	return list[i]
}
