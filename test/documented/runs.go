package documented

// Runs are the tests that run the blocks of commands, by Block.Place, or "no: " and why none does.
// TestDocuments and TestTutorial are `make check NAME=docs`, TestOperating and TestServersFail are `make check
// NAME=servers`, TestRealCluster and TestHelm `make check NAME=real-cluster`; the others are among
// the usual tests.
var Runs = map[string]string{
	"README.md#Build":                          "no: CI's first steps are these",
	"README.md#Try it in a lab":                "TestREADMELab",
	"README.md#When a Service doesn't answer":  "TestREADMELab",
	"README.md#Three machines and one address": "TestREADMEMachines, TestEveryMachineServesHosts",
	"docs/how-to/installing.md#Installing on a machine, upgrading, uninstalling": "TestREADMEInstall",
	"README.md#In kube-proxy's place":                                            "TestREADMEOperator",
	"docs/explanation/ebpf.md#Other kernels":                                     "no: as `make check NAME=kernels`, an hour",
	"docs/explanation/ebpf.md#What a connection costs":                           "no: a measurement",
	"docs/explanation/ebpf.md#What a packet costs":                               "no: a measurement",

	"docs/how-to/diagnosis.md#A bundle for a bug report": "TestDocuments",

	"docs/how-to/dns.md#Cluster DNS":                "TestDocuments",
	"docs/how-to/dns.md#On the machines themselves": "TestDocuments",
	"docs/how-to/dns.md#Cost":                       "no: a measurement",

	"docs/how-to/helm.md#Install by Helm": "TestHelm",
	"docs/how-to/helm.md#Remove it":       "TestHelm",

	"docs/how-to/hooks.md#Names on another DNS server": "no: it serves beside a DNS server that takes updates, which TestDNSUpdate has",

	"docs/how-to/ingress.md#Try it":                       "TestDocuments",
	"docs/how-to/ingress.md#Why does a request go there?": "TestDocuments",
	"docs/how-to/ingress.md#In a cluster":                 "no: it takes the network and an image; TestGatewayInCluster applies deploy/gateway",
	"docs/how-to/ingress.md#On machines of their own":     "TestGateway, TestGatewayAlone",

	"docs/how-to/loadbalancer.md#The short way":         "TestDocuments",
	"docs/how-to/loadbalancer.md#Trying it":             "TestDocuments",
	"docs/how-to/loadbalancer.md#Before work on a node": "TestDocuments",

	"docs/how-to/machines.md#The first five minutes":                       "TestFirstFiveMinutes",
	"docs/how-to/machines.md#Expose what runs":                             "TestDocuments",
	"docs/how-to/machines.md#Publish: each machine registers what it runs": "TestDocuments",
	"docs/how-to/machines.md#Clients of other machines":                    "TestDocuments",

	"docs/how-to/operating.md#Joining machines":   "TestOperating",
	"docs/how-to/operating.md#Certificates":       "TestServersFail, TestReplaceAuthorities",
	"docs/how-to/operating.md#One server":         "TestOperating",
	"docs/how-to/operating.md#Three servers":      "TestOperating",
	"docs/how-to/operating.md#Backup and restore": "TestOperating",
	"docs/how-to/operating.md#Secrets":            "TestOperating",
	"docs/how-to/operating.md#An existing etcd":   "TestTwoServersOneEtcd",
	"docs/how-to/operating.md#Audit and limits":   "TestOperating",

	"docs/how-to/replacing-ingress-nginx.md#Convert them to Gateway API": "TestDocuments",

	"docs/how-to/replacing-kube-proxy.md#Trying it":      "TestRealCluster, TestREADMEOperator",
	"docs/how-to/replacing-kube-proxy.md#Going back":     "TestRealCluster",
	"docs/how-to/replacing-kube-proxy.md#Other clusters": "TestRealCluster",

	"docs/how-to/verify.md#Digests and signature": "TestSigned",
	"docs/how-to/verify.md#The same bytes":        "no: as `make check NAME=reproducible`, a quarter of an hour",
	"docs/how-to/verify.md#Images":                "no: it takes containerd and a registry; TestImages reads the layout",
	"docs/how-to/verify.md#Lists of parts":        "no: it takes a release; TestSPDX reads a list",

	"docs/reference/configuration.md#Metrics": "TestDocuments",

	"docs/tutorials/services.md#A cluster to try things in":                  "TestTutorial",
	"docs/tutorials/services.md#Pods":                                        "TestTutorial",
	"docs/tutorials/services.md#A Service":                                   "TestTutorial",
	"docs/tutorials/services.md#Why does it go there?":                       "TestTutorial",
	"docs/tutorials/services.md#The first fault: nobody is ready":            "TestTutorial",
	"docs/tutorials/services.md#The second fault: a word that is wrong":      "TestTutorial",
	"docs/tutorials/services.md#From outside":                                "TestTutorial",
	"docs/tutorials/services.md#The third fault: a policy without endpoints": "TestTutorial",
	"docs/tutorials/services.md#Take it away":                                "TestTutorial",

	"docs/tutorials/machines.md#Join them":   "TestTutorialLines",
	"docs/tutorials/machines.md#One address": "TestTutorialLines",

	"docs/tutorials/cluster.md#Look before you leap": "TestTutorialLines",
	"docs/tutorials/cluster.md#One node":             "TestTutorialLines",
	"docs/tutorials/cluster.md#And back":             "TestTutorialLines",
	"docs/tutorials/cluster.md#All nodes":            "TestTutorialLines",

	"docs/results/performance-notes.md#ipvs": "no: a measurement",
	"docs/results/scale.md#Custom resources": "no: a measurement",
}
