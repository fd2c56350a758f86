package kubeproxy

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/agent"
)

// samples are values, as a file has them, of all fields that have an effect, with
// the mode that they are for and what else they need.
var samples = map[string]string{
	"kind":                                "", // the file can't be without
	"apiVersion":                          "",
	"clientConnection.kubeconfig":         "KUBECONFIG",
	"clientConnection.acceptContentTypes": "application/json",
	"clientConnection.contentType":        "application/json",
	"clientConnection.qps":                "77",
	"clientConnection.burst":              "78",
	"logging.format":                      "json",
	"logging.verbosity":                   "4",
	"hostnameOverride":                    "Other-Node",
	"bindAddress":                         "192.0.2.9",
	"healthzBindAddress":                  "127.0.0.1:12345",
	"metricsBindAddress":                  "127.0.0.1:12346",
	"bindAddressHardFail":                 "true",
	"enableProfiling":                     "true",
	"mode":                                "userspace",
	"iptables.masqueradeBit":              "3",
	"iptables.masqueradeAll":              "true",
	"iptables.localhostNodePorts":         "false",
	"iptables.syncPeriod":                 "17s",
	"iptables.minSyncPeriod":              "2s",
	"nftables.minSyncPeriod":              "3s",
	"ipvs.minSyncPeriod":                  "1s",
	"ipvs.excludeCIDRs":                   "[192.0.2.0/24]",
	"ipvs.strictARP":                      "true",
	"ipvs.tcpTimeout":                     "15m",
	"ipvs.tcpFinTimeout":                  "2m",
	"ipvs.udpTimeout":                     "5m",
	"ipvs.syncPeriod":                     "18s",
	"ipvs.scheduler":                      "lc",
	"nftables.masqueradeAll":              "true",
	"nftables.syncPeriod":                 "19s",
	"detectLocalMode":                     "NodeCIDR",
	"detectLocal.bridgeInterface":         "br7",
	"detectLocal.interfaceNamePrefix":     "veth",
	"clusterCIDR":                         "10.7.0.0/16",
	"nodePortAddresses":                   "[198.51.100.0/24]",
	"oomScoreAdj":                         "7",
	"conntrack.maxPerCore":                "7000000",
	"conntrack.min":                       "900000000",
	"conntrack.tcpEstablishedTimeout":     "7h",
	"conntrack.tcpCloseWaitTimeout":       "8m",
	"conntrack.tcpBeLiberal":              "true",
	"conntrack.udpTimeout":                "9s",
	"conntrack.udpStreamTimeout":          "10s",
}

// beside are lines that a field needs to mean something.
var beside = map[string]string{
	"detectLocal.bridgeInterface":     "detectLocalMode: BridgeInterface",
	"detectLocal.interfaceNamePrefix": "detectLocalMode: InterfaceNamePrefix",
}

const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// document is a file in which a field has a value; with "", the same without it.
func document(path, value string) string {
	var b strings.Builder
	b.WriteString(head)
	if beside[path] != "" {
		fmt.Fprintln(&b, beside[path])
	}
	if mode, _, below := strings.Cut(path, "."); below && slices.Contains([]string{"iptables", "ipvs", "nftables"}, mode) {
		fmt.Fprintln(&b, "mode:", mode)
	}
	if value == "" {
		return b.String()
	}
	for i, name := range strings.Split(path, ".") {
		fmt.Fprintf(&b, "%s%s:", strings.Repeat("  ", i), name)
		if i < strings.Count(path, ".") {
			fmt.Fprintln(&b)
		}
	}
	fmt.Fprintln(&b, " "+value)
	return b.String()
}

// TestEveryFieldIsKnown walks over kube-proxy's type: a field that a later
// version adds fails here.
func TestEveryFieldIsKnown(t *testing.T) {
	left := maps.Clone(fields)
	leaves("", reflect.ValueOf(&Configuration{}).Elem(), func(path string, _ reflect.Value) {
		if _, known := fields[path]; !known {
			t.Errorf("%s: neither has an effect nor says why not", path)
		}
		delete(left, path)
	})
	for path := range left {
		t.Errorf("%s: is no field of kube-proxy's", path)
	}
}

func base() agent.Config {
	return agent.Config{NodeName: "node", Mode: agent.AutoMode, VerifyPeriod: time.Minute, RetryBind: true, Log: slog.New(slog.DiscardHandler)}
}

// load is what an agent is to do with a file, in a form to compare.
func load(t *testing.T, document string) (string, []string) {
	t.Helper()
	c, warnings, err := Parse([]byte(document))
	if err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	var level slog.LevelVar
	s := &Source{Flags: &Flags{}, Verbosity: &level, api: &rest.Config{}, from: &Configuration{ClientConnection: c.ClientConnection}}
	config, err := s.agent(c, base())
	if err != nil {
		t.Fatal(err)
	}
	config.API, config.Shown = nil, nil
	oom := *config.OOMScoreAdj
	config.OOMScoreAdj = nil
	_, json := config.Log.Handler().(*slog.JSONHandler)
	config.Log = nil
	return fmt.Sprintf("%+v oom %d level %v json %t connection %+v", config, oom, level.Level(), json, c.ClientConnection), warnings
}

// TestEveryFieldHasItsEffectOrAWarning sets each field, one by one.
func TestEveryFieldHasItsEffectOrAWarning(t *testing.T) {
	wrongly := map[string]string{ // values for fields without an effect
		"featureGates": "{ContextualLogging: true}", "logging.vmodule": "[{filePattern: x, verbosity: 5}]",
		"logging.flushFrequency": "1s", "windowsRunAsService": "true", "portRange": "1-2", "configSyncPeriod": "1m",
		"showHiddenMetricsForVersion": "\"1.36\"", "nftables.masqueradeBit": "5",
	}
	for path, e := range fields {
		t.Run(path, func(t *testing.T) {
			if e.why == "" {
				without := document(path, "")
				if beside[path] != "" { // which is an error by itself
					without = head
				}
				before, _ := load(t, without)
				after, warnings := load(t, document(path, samples[path]))
				if samples[path] != "" && before == after {
					t.Errorf("%s: %s has no effect", path, samples[path])
				}
				if len(warnings) > 0 {
					t.Errorf("warnings about what has its effect: %q", warnings)
				}
				return
			}
			value := wrongly[path]
			for _, v := range []string{value, "true", "7s", "seven", "7Ki"} {
				if value = v; v == "" {
					continue
				}
				if _, _, err := Parse([]byte(document(path, v))); err == nil {
					break
				}
			}
			c, warnings, err := Parse([]byte(document(path, value)))
			if err != nil {
				t.Fatal(err)
			}
			if len(warnings) != 1 || !strings.HasPrefix(warnings[0], path+": has no effect: ") {
				t.Errorf("%s: %s: warnings %q, in %+v", path, value, warnings, c.Logging)
			}
		})
	}
}

// TestEveryFieldMayChange: what a field changes in an agent's configuration is
// nothing that is fixed when its process starts, and the agent takes it in (which
// the agent's and the lab's tests show), but for the format of the log, of which
// TestFormatOfTheLog has it that it is told.
func TestEveryFieldMayChange(t *testing.T) {
	fixed := []string{"ServiceMetrics", "EndpointMetrics", "Updates", "Register", "TuneGC", "DNS"}
	s := &Source{Flags: &Flags{Master: "http://127.0.0.1:1"}, Verbosity: new(slog.LevelVar)}
	configured := func(document string) reflect.Value {
		config, err := s.parse([]byte(document), base())
		if err != nil {
			t.Fatal(err)
		}
		return reflect.ValueOf(config)
	}
	for path, value := range samples {
		if path == "clientConnection.kubeconfig" || value == "" { // there is no such file
			continue
		}
		without := document(path, "")
		if beside[path] != "" {
			without = head
		}
		before, after := configured(without), configured(document(path, value))
		for i := range before.NumField() {
			name := before.Type().Field(i).Name
			if name == "Log" && path == "logging.format" || reflect.DeepEqual(before.Field(i).Interface(), after.Field(i).Interface()) {
				continue
			}
			if name == "Log" || slices.Contains(fixed, name) {
				t.Errorf("%s: changes %s, which a running agent doesn't take in", path, name)
			}
		}
	}
}

// TestDefaultsNeedNoWarning: what kube-proxy and kubeadm write out in full is
// what there would be anyway.
func TestDefaultsNeedNoWarning(t *testing.T) {
	c, warnings, err := Parse([]byte(head))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("warnings %q, error %v", warnings, err)
	}
	if warnings := Warnings(c); len(warnings) > 0 {
		t.Errorf("the defaults warn: %q", warnings)
	}
}

// TestGatesOfPages: the two gates of kube-proxy that Fairway has a use for have
// theirs without a warning.
func TestGatesOfPages(t *testing.T) {
	c, warnings, err := Parse([]byte(head + "featureGates: {ComponentFlagz: false, ComponentStatusz: true}\n"))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("warnings %q, error %v", warnings, err)
	}
	config, err := Agent(c, base())
	if err != nil || !config.ZPages.NoFlagz || config.ZPages.NoStatusz {
		t.Errorf("pages %+v, error %v", config.ZPages, err)
	}
	_, warnings, err = Parse([]byte(head + "featureGates: {ComponentFlagz: false, KubeProxyDrainingTerminatingNodes: true}\n"))
	if err != nil || len(warnings) != 1 || !strings.HasSuffix(warnings[0], ": KubeProxyDrainingTerminatingNodes") {
		t.Errorf("warnings %q, error %v", warnings, err)
	}
}
