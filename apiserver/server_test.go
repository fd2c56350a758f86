package apiserver

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFreshServer(t *testing.T) {
	s := start(t, testConfig(t))
	c := client(t, s)
	svc, err := c.CoreV1().Services("default").Get(within(t), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if svc.Spec.ClusterIP != "10.96.0.1" {
		t.Errorf("default/kubernetes has cluster IP %s, want 10.96.0.1", svc.Spec.ClusterIP)
	}
	slices, err := c.DiscoveryV1().EndpointSlices("default").List(within(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(slices.Items) != 0 { // they would mean another machine on every node
		t.Errorf("a server at a loopback address has endpoints: %v", slices.Items)
	}
	if _, err := c.CoreV1().Namespaces().Get(within(t), "kube-system", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(s.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("admin kubeconfig has mode %v, want 0600", info.Mode().Perm())
	}
}

func TestRestartKeepsEverything(t *testing.T) {
	config := testConfig(t)
	config.ServiceCIDRs = append(config.ServiceCIDRs, netip.MustParsePrefix("fd00:96::/112"))
	s, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	dual := corev1.IPFamilyPolicyRequireDualStack
	before, err := client(t, s).CoreV1().Services("default").Create(within(t), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, IPFamilyPolicy: &dual,
			Ports: []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := client(t, start(t, config)).CoreV1().Services("default").Get(within(t), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.ResourceVersion != before.ResourceVersion || after.Spec.ClusterIP != before.Spec.ClusterIP || len(after.Spec.ClusterIPs) != 2 {
		t.Errorf("after a restart the Service is %v, was %v", after, before)
	}
}

// TestRefusals: what can't work ends in one line that says why, and leaves
// nothing behind that would hinder the next attempt.
func TestRefusals(t *testing.T) {
	taken := sharedServer(t)
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"second instance", func(c *Config) { c.DataDir = taken.config.DataDir }, "is in use by another fairway server"},
		{"port in use", func(c *Config) { c.Port = taken.config.Port }, "address already in use"},
		{"data directory is a file", func(c *Config) {
			c.DataDir = filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(c.DataDir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a directory"},
		{"no data directory", func(c *Config) { c.DataDir = "" }, "data directory: not given"},
		{"bad port", func(c *Config) { c.Port = 70000 }, "port 70000: must be between 0 and 65535"},
		{"foreign address", func(c *Config) { c.BindAddress = netip.MustParseAddr("192.0.2.1") }, "cannot assign requested address"},
		{"no service CIDR", func(c *Config) { c.ServiceCIDRs = nil }, "service CIDR: not given"},
		{"two of a family", func(c *Config) {
			c.ServiceCIDRs = append(c.ServiceCIDRs, netip.MustParsePrefix("10.97.0.0/16"))
		}, "at most one of each"},
		{"small service CIDR", func(c *Config) { c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/31")} }, "is too small"},
		{"advertised nowhere", func(c *Config) { c.AdvertiseAddress = netip.IPv6Unspecified() }, "other machines can't reach it"},
		{"DNS outside of the ranges", func(c *Config) { c.ClusterDNS = netip.MustParseAddr("10.97.0.10") }, "it is in none of the ranges of cluster IPs, [10.96.0.0/16]"},
		{"DNS at the API's address", func(c *Config) { c.ClusterDNS = netip.MustParseAddr("10.96.0.1") }, "it is that of Service kubernetes"},
		{"broken authority", func(c *Config) {
			if err := os.MkdirAll(filepath.Join(c.DataDir, "pki"), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"ca.crt", "ca.key"} {
				if err := os.WriteFile(filepath.Join(c.DataDir, "pki", name), []byte("nonsense"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}, "is not PEM encoded"},
		{"unreachable etcd", func(c *Config) { c.EtcdServers = []string{"http://127.0.0.1:1"} }, "reach etcd at [http://127.0.0.1:1]"},
		{"missing token file", func(c *Config) { c.TokenFile = "/nonexistent" }, "no such file or directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := testConfig(t)
			test.change(&config)
			s, err := Start(t.Context(), config)
			if err == nil {
				t.Fatal(s.Close(), "started")
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, test.want)
			}
			if config.DataDir == taken.config.DataDir || test.name == "data directory is a file" || config.DataDir == "" {
				return
			}
			lock, err := openDataDir(config.DataDir)
			if err != nil {
				t.Fatalf("the failed server still holds its data directory: %v", err)
			}
			if err := lock.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
