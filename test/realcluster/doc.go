// Package realcluster makes a cluster as operators have it on one machine: kubeadm,
// kubelets, containerd, a CNI's bridge, Kubernetes' own control plane. Nodes are
// namespaces; nothing of it touches the machine's own network, mounts or /run.
//
//	network.go   what a lab's network lacks for a CNI: masquerading
//	node.go      a node from outside: start, run a command in it, reboot
//	boot.go      a node's first process: its file systems, containerd, the kubelet
//	cgroups.go   the node's cgroups in every hierarchy
//	config.go    the files that containerd, the CNI and kubeadm read
//	cni.go       how pods are connected: bridge, ptp, flannel
//	image.go     an image as a file that containerd imports
//	images.go    the images of the cluster
//	cluster.go   all of it together
//	ask.go       the questions that clients ask, and their answers
//	load.go      new connections at a rate, and kept ones
//	workload.go  the pods and Services that are asked, and the clients
//	endpoints.go whether what the API calls ready answers
//	table.go     the table of questions that is compared with kube-proxy's
//	answers.go   the same as a table to read
//	guides.go    what the guides have an operator do
//	leftovers.go what a node has of Fairway in its kernel
//	underload.go what is done while clients ask, and what they lost
//	client.go    a client that asks where it runs, told by HTTP
package realcluster
