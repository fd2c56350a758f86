package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/config/kubeproxy"
)

// proxyFlags are the flags of kube-proxy 1.28 to 1.37 on Linux, as its --help
// lists them, with a value.
const proxyFlags = `
--bind-address=192.0.2.1 --bind-address-hard-fail --boot-id-file=/x --cleanup --cluster-cidr=10.244.0.0/16,fd00::/48
--config=/x --config-sync-period=15m --conntrack-max-per-core=32768 --conntrack-min=131072 --conntrack-tcp-be-liberal
--conntrack-tcp-timeout-close-wait=1h --conntrack-tcp-timeout-established=24h --conntrack-udp-timeout=30s
--conntrack-udp-timeout-stream=2m --detect-local-mode=NodeCIDR --feature-gates=A=true,B=false --healthz-bind-address=0.0.0.0:10256
--healthz-port=10256 --help --hostname-override=n --init-only --iptables-localhost-nodeports=false --iptables-masquerade-bit=14
--iptables-min-sync-period=1s --iptables-sync-period=30s --ipvs-exclude-cidrs=10.0.0.0/8 --ipvs-min-sync-period=1s
--ipvs-scheduler=rr --ipvs-strict-arp --ipvs-sync-period=30s --ipvs-tcp-timeout=1m --ipvs-tcpfin-timeout=1m --ipvs-udp-timeout=1m
--kube-api-burst=10 --kube-api-content-type=application/json --kube-api-qps=5 --kubeconfig=/x --log-flush-frequency=5s
--log-json-info-buffer-size=0 --log-json-split-stream --log-text-info-buffer-size=0 --log-text-split-stream --logging-format=text
--machine-id-file=/x --masquerade-all --master=https://192.0.2.1 --metrics-bind-address=127.0.0.1:10249 --metrics-port=10249
--nodeport-addresses=primary --oom-score-adj=-999 --pod-bridge-interface=cni0 --pod-interface-name-prefix=veth --profiling
--proxy-mode=ipvs --proxy-port-range=1-2 --show-hidden-metrics-for-version=1.36 -v=2 --version --vmodule=a=1 --write-config-to=/x`

func TestEveryFlagOfKubeProxyIsAccepted(t *testing.T) {
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	NewAgent().Add(flags)
	if err := flags.Parse(strings.Fields(strings.ReplaceAll(proxyFlags, "--help ", ""))); err != nil {
		t.Fatal(err)
	}
	for _, text := range strings.Fields(proxyFlags) {
		name, _, _ := strings.Cut(strings.TrimLeft(text, "-"), "=")
		if name != "help" && !flags.Changed(name) {
			t.Errorf("--%s: not taken in", name)
		}
	}
}

// told is what an agent would be started with, and what it says first.
func told(t *testing.T, args ...string) (agent.Config, string, error) {
	t.Helper()
	role := NewAgent()
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	role.Add(flags)
	if err := flags.Parse(append(args, "--master=http://127.0.0.1:1")); err != nil {
		return agent.Config{}, "", err
	}
	stderr, log, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	kept := os.Stderr
	os.Stderr = log
	config, configErr := role.Load(t.Context(), flags)
	os.Stderr = kept
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	if _, err := said.ReadFrom(stderr); err != nil {
		t.Fatal(err)
	}
	return config, said.String(), configErr
}

func TestFlagsAlone(t *testing.T) {
	config, said, err := told(t, "--proxy-mode=ipvs", "--hostname-override=n1", "--ipvs-scheduler=lc", "--ipvs-sync-period=7s",
		"--ipvs-tcp-timeout=1m", "--config-sync-period=1m", "--feature-gates=A=true", "--healthz-port=0", "--metrics-port=1234", "--metrics-bind-address=127.0.0.1:10249",
		"--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=veth", "--conntrack-udp-timeout=9s", "--profiling")
	if err != nil {
		t.Fatal(err)
	}
	if config.Mode != "ipvs" || config.NodeName != "n1" || config.Plane.Scheduler != "lc" || config.VerifyPeriod.Seconds() != 7 ||
		config.HealthzAddress != "" || config.MetricsAddress != "127.0.0.1:1234" || !config.Profiling ||
		len(config.Compile.Pods.Interfaces) != 1 || config.Compile.Pods.Interfaces[0] != "veth*" || config.Conntrack.UDP.Seconds() != 9 ||
		config.Conntrack.Max != 0 || config.OOMScoreAdj != nil {
		t.Errorf("got %+v", config)
	}
	if got := config.Plane.IPVS.TCP; got != time.Minute {
		t.Errorf("IPVS's timeout %s", got)
	}
	for _, name := range []string{"--config-sync-period: has no effect", "--feature-gates: has no effect"} {
		if !strings.Contains(said, name) {
			t.Errorf("nothing said of %s in %s", name, said)
		}
	}
	if n := strings.Count(said, "has no effect"); n != 2 {
		t.Errorf("%d warnings: %s", n, said)
	}
}

func TestFlagsBesideAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	document := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.1.0.0/16\nhostnameOverride: of-file\n"
	if err := os.WriteFile(file, []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	config, said, err := told(t, "--config="+file, "--cluster-cidr=10.2.0.0/16", "--hostname-override=Of-Flag", "--proxy-mode=userspace",
		"--oom-score-adj=5", "--service-cidr=10.96.0.0/16", "-v=4", "--masquerade-all")
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Compile.Pods.Prefixes; len(got) != 1 || got[0].String() != "10.1.0.0/16" {
		t.Errorf("pods %v", got)
	}
	if config.NodeName != "of-flag" || config.Mode != "userspace" || *config.OOMScoreAdj != -999 || len(config.Compile.ServiceCIDRs) != 1 ||
		config.Compile.MasqueradeAll || config.Updates == nil || config.Conntrack.Max < 131072 || config.DNS != nil {
		t.Errorf("got %+v", config)
	}
	for _, name := range []string{"--cluster-cidr", "--oom-score-adj", "--masquerade-all"} {
		if !strings.Contains(said, name+": has no effect beside --config") {
			t.Errorf("nothing said of %s in %s", name, said)
		}
	}
}

// TestFlagsBesideAFileThatChanges: what the file has no field for stays.
func TestFlagsBesideAFileThatChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	document := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	// In one step, so that no half of it is ever read.
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write(document)
	before, _, err := told(t, "--config="+file, "--dns", "--service-cidr=10.96.0.0/16", "--node-name=n1", "--mode=nftables", "--service-metrics=7")
	if err != nil {
		t.Fatal(err)
	}
	write(document + "healthzBindAddress: 127.0.0.1:1\nmode: iptables\n")
	select {
	case update := <-before.Updates:
		after := update.Config
		if update.Err != nil || after.HealthzAddress != "127.0.0.1:1" || after.Mode != "iptables" {
			t.Errorf("got %+v", update)
		}
		if before.DNS == nil || after.DNS != before.DNS || !after.TuneGC || after.NodeName != "n1" || after.ServiceMetrics != 7 ||
			len(after.Compile.ServiceCIDRs) != 1 || after.ZPages.Version != before.ZPages.Version {
			t.Errorf("got %+v after %+v", after, before)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("no update")
	}
}

func TestWriteConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if _, _, err := told(t, "--write-config-to="+file, "--proxy-mode=nftables", "--cluster-cidr=10.2.0.0/16", "--conntrack-min=7"); err != nil {
		t.Fatal(err)
	}
	c, warnings, err := kubeproxy.Read(file)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("warnings %q, error %v", warnings, err)
	}
	if c.Mode != "nftables" || c.ClusterCIDR != "10.2.0.0/16" || *c.Conntrack.Min != 7 || *c.Conntrack.MaxPerCore != 32768 {
		t.Errorf("got %+v", c)
	}
}
