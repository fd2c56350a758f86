package kubeproxy

import (
	"os"
	"strings"
	"testing"
)

// TestKubeadm reads what kubeadm writes into the ConfigMap kube-proxy.
func TestKubeadm(t *testing.T) {
	data, err := os.ReadFile("testdata/kubeadm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, warnings, err := Parse(data)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("warnings %q, error %v", warnings, err)
	}
	config, err := Agent(c, base())
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Compile.Pods.Prefixes; len(got) != 1 || got[0].String() != "10.244.0.0/16" {
		t.Errorf("pods %v", got)
	}
	if config.HealthzAddress != "0.0.0.0:10256" || config.MetricsAddress != "127.0.0.1:10249" || config.Mode != "auto" {
		t.Errorf("got %+v", config)
	}
}

func TestErrorsNameTheField(t *testing.T) {
	for _, test := range []struct{ document, want string }{
		{"kind: KubeProxyConfiguration\n", "apiVersion: missing"},
		{"apiVersion: kubeproxy.config.k8s.io/v1alpha1\n", "kind: missing"},
		{"apiVersion: kubeproxy.config.k8s.io/v9\nkind: KubeProxyConfiguration\n", "apiVersion and kind: must be kubeproxy.config.k8s.io/v1alpha1"},
		{"apiVersion: v1\nkind: Pod\n", "must be kubeproxy.config.k8s.io/v1alpha1"},
		{head + "moed: ipvs\n", "moed: no such field"},
		{head + "iptables:\n  masqueradebits: 3\n", "iptables.masqueradebits: no such field"},
		{head + "mode: ipvs\nmode: iptables\n", `"mode" already set`},
		{head + "mode: kernelspace\n", "mode: \"kernelspace\" must be one of"},
		{head + "mode: [ipvs]\n", "mode"},
		{head + "oomScoreAdj: 2000\n", "oomScoreAdj: 2000 must be"},
		{head + "iptables: {masqueradeBit: 32}\n", "iptables.masqueradeBit: 32 must be"},
		{head + "iptables: {syncPeriod: -1s}\n", "iptables.syncPeriod: -1s must be"},
		{head + "ipvs: {syncPeriod: 1s, minSyncPeriod: 2s}\n", "ipvs.syncPeriod: 1s must not be less than ipvs.minSyncPeriod"},
		{head + "ipvs: {scheduler: fastest}\n", `ipvs.scheduler: "fastest" must be one of`},
		{head + "detectLocalMode: Guess\n", `detectLocalMode: "Guess" must be one of`},
		{head + "detectLocalMode: BridgeInterface\n", "detectLocal.bridgeInterface"},
		{head + "clusterCIDR: 10.0.0.0/8,11.0.0.0/8\n", "clusterCIDR"},
		{head + "clusterCIDR: ten\n", `clusterCIDR: "ten" is not a CIDR`},
		{head + "nodePortAddresses: [here]\n", "nodePortAddresses"},
		{head + "bindAddress: here\n", `bindAddress: "here" is not`},
		{head + "healthzBindAddress: 0.0.0.0:healthz\n", "healthzBindAddress"},
		{head + "metricsBindAddress: 0.0.0.0:99999\n", "metricsBindAddress"},
		{head + "conntrack: {maxPerCore: -1}\n", "conntrack.maxPerCore: -1 must not"},
		{head + "conntrack: {udpTimeout: -1s}\n", "conntrack.udpTimeout"},
		{head + "logging: {format: xml}\n", "logging.format"},
		{"", "missing"},
		{"}{", "decode"},
	} {
		_, _, err := Parse([]byte(test.document))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: error %v, want one with %q", test.document, err, test.want)
		}
	}
}

func TestFormerFieldsWarn(t *testing.T) {
	_, warnings, err := Parse([]byte(head + "udpIdleTimeout: 250ms\nresourceContainer: /kube-proxy\n"))
	if err != nil || len(warnings) != 2 {
		t.Errorf("warnings %q, error %v", warnings, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head))
	f.Add([]byte(head + "clusterCIDR: \",\"\nnodePortAddresses: [localhost, all]\ndetectLocalMode: NodeCIDR\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := Parse(data)
		if err != nil {
			return
		}
		if _, err := Agent(c, base()); err != nil {
			t.Errorf("Parse takes what Agent refuses: %v", err)
		}
	})
}
