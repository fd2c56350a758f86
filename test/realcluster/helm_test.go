//go:build realcluster

package realcluster

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The pool of the chart's test: addresses of the nodes' link.
const (
	pool4, pool6 = "172.30.0.200-172.30.0.210", "fd00:172:30::200-fd00:172:30::210"
	routed       = "shop.example.com" // see Routed
)

// TestHelm installs all that the chart has, uses it, upgrades it to another mode, rolls it
// back and removes it, as docs/how-to/helm.md says.
func TestHelm(t *testing.T) {
	c := newCluster(t, Options{})
	defer hold(t, c)
	if err := c.Work(); err != nil {
		t.Fatal(err)
	}
	h := &charted{t: t, c: c}
	h.must(h.pack(filepath.Join(c.options.Deploy, "chart"), &h.archive))
	h.must(h.gatewayAPI())
	h.step("helm install", h.install)
	h.must(h.routes())
	h.served("after the installation")
	h.monitored()
	h.commands()
	h.inPod()
	h.step("helm upgrade to ebpf mode", func() error {
		return errors.Join(h.helm("upgrade", "--reuse-values", "--set", "agent.ebpf=true"), c.RolledOut("kube-system", "daemonset/fairway"), c.SetMode("ebpf"))
	})
	h.served("in ebpf mode")
	h.step("helm rollback", func() error {
		if err := c.SetMode("nftables"); err != nil {
			return err
		}
		_, err := h.run("rollback", "fairway", "1", "-n", "kube-system")
		return errors.Join(err, c.RolledOut("kube-system", "daemonset/fairway"))
	})
	h.served("after the rollback")
	h.remove()
}

// charted is a cluster with a release of the chart.
type charted struct {
	t       *testing.T
	c       *Cluster
	archive string
}

// pack packs a chart, as `make release` does.
func (h *charted) pack(chart string, archive *string) error {
	dir, err := os.MkdirTemp(h.c.dir, "chart-")
	if err != nil {
		return err
	}
	if _, err := h.run("package", chart, "--destination", dir); err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(dir, "fairway-*.tgz"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("the packed chart: %v, %w", found, err)
	}
	*archive = found[0]
	return nil
}

func (h *charted) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// step does something that loses no connection.
func (h *charted) step(what string, do func() error) {
	h.t.Helper()
	report, err := h.c.UnderLoad(what, do)
	if err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
	h.t.Log(report)
	if failed, broken := report.Lost(); failed+broken > 0 {
		h.t.Errorf("%s lost connections", what)
	}
}

// run runs helm on the administrator's machine.
func (h *charted) run(args ...string) (string, error) {
	return h.c.Admin("", append([]string{filepath.Join(filepath.Dir(h.c.options.Fairway), "helm")}, args...)...)
}

func (h *charted) helm(verb string, more ...string) error {
	_, err := h.run(append([]string{verb, "fairway", h.archive, "-n", "kube-system"}, more...)...)
	return err
}

// gatewayAPI applies the definitions of the module that the program is made with.
func (h *charted) gatewayAPI() error {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		return fmt.Errorf("find Gateway API's definitions: %w", err)
	}
	_, err = h.c.Kubectl("", "apply", "--server-side", "-f", filepath.Join(strings.TrimSpace(string(dir)), "config/crd/standard"))
	return err
}

// install installs the chart, and has kube-proxy leave the nodes.
func (h *charted) install() error {
	c := h.c
	err := h.helm("install", "--set", "image.repository="+FairwayImage+",image.tag="+FairwayTag,
		"--set", "agent.existingConfigMap=kube-proxy,announce.enabled=true,addresses.enabled=true,gateway.enabled=true",
		"--set", "agent.extraArgs={--ignore-exclude-lb}",
		"--set", "monitoring.enabled=true,monitoring.serviceMonitor=false,monitoring.rules=false",
		"--set", "addresses.ranges={"+pool4+","+pool6+"}")
	if err != nil {
		return err
	}
	if err := h.stopKubeProxy(); err != nil {
		return err
	}
	for _, what := range []string{"daemonset/fairway", "deployment/fairway-addresses", "daemonset/fairway-engine", "deployment/fairway-gateway-controller"} {
		if err := c.RolledOut("kube-system", what); err != nil {
			return err
		}
	}
	return nil
}

// stopKubeProxy has kube-proxy leave the nodes.
func (h *charted) stopKubeProxy() error {
	_, err := h.c.Kubectl("", "apply", "--server-side", "--field-manager", "fairway", "-f", filepath.Join(h.c.deploy, "kubeadm/kube-proxy.yaml"))
	return err
}

// routes makes a Gateway with a route, and an Ingress.
func (h *charted) routes() error {
	_, err := h.c.Kubectl(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: real}
spec:
  gatewayClassName: fairway
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: real}
spec:
  parentRefs: [{name: gw}]
  hostnames: [`+routed+`]
  rules: [{backendRefs: [{name: web, port: 80}]}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: real}
spec:
  ingressClassName: fairway
  rules: [{host: `+routed+`, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
`, "apply", "-f", "-")
	return err
}

// served asks the load balancer addresses of a Service, the Gateway and the Ingresses from
// outside the cluster, where only layer 2 leads to them.
func (h *charted) served(when string) {
	h.t.Helper()
	for _, s := range []struct {
		namespace, name string
		routed          bool
	}{{namespace, "local", false}, {namespace, "gw-fairway", true}, {"kube-system", "ingress-fairway", true}} {
		err := h.c.await(s.namespace+"/"+s.name+" answers "+when, func() error { return h.answers(s.namespace, s.name, s.routed) })
		if err != nil {
			h.t.Error(err)
		}
	}
}

func (h *charted) answers(namespace, name string, routed bool) error {
	out, err := h.c.Kubectl("", "-n", namespace, "get", "service", name, "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}")
	if err != nil {
		return err
	}
	if out == "" {
		return errors.New("it has no address")
	}
	outside := h.c.Clients[len(h.c.Clients)-1]
	for text := range strings.FieldsSeq(out) {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return err
		}
		to, way := netip.AddrPortFrom(address, 80).String(), TCP
		if routed {
			way = Routed
		}
		a, err := outside.Ask(way, to)
		if err != nil {
			return err
		}
		if a.Failed != "" || !strings.HasPrefix(a.Server, "web@") {
			return fmt.Errorf("%s answers %+v", to, a)
		}
	}
	return nil
}

// commands has an administrator ask from a machine outside the cluster.
func (h *charted) commands() {
	for _, args := range [][]string{
		{"doctor", "-A"}, {"status"}, {"explain", "real/local"}, {"explain", "http://" + routed + "/"}, {"announce", "status"},
		{"bundle", "-o", filepath.Join(h.c.dir, "bundle.tgz")}, {"doctor", "-f", filepath.Join(h.c.dir, "bundle.tgz")},
	} {
		out, err := h.c.Admin("", append([]string{h.c.options.Fairway}, args...)...)
		h.t.Logf("fairway %s\n%s", strings.Join(args, " "), out)
		if exit := (*exec.ExitError)(nil); err != nil && !(args[0] == "doctor" && errors.As(err, &exit) && exit.ExitCode() == 1) {
			h.t.Errorf("fairway %s: %v", strings.Join(args, " "), err)
		}
	}
}

// inPod asks in an agent's pod, with what that may.
func (h *charted) inPod() {
	for _, args := range []string{"status", "explain real/local", "doctor svc/web -n real", "announce status --here"} {
		exec := append([]string{"-n", "kube-system", "exec", "daemonset/fairway", "-c", "fairway", "--", "/usr/local/bin/fairway"}, strings.Fields(args)...)
		out, err := h.c.Kubectl("", exec...)
		h.t.Logf("in the agent's pod: fairway %s\n%s", args, out)
		if err != nil {
			h.t.Errorf("in the agent's pod: fairway %s: %v", args, err)
		}
		if strings.Contains(out, "no node announces") {
			h.t.Errorf("in the agent's pod, fairway %s says that an address isn't announced", args)
		}
	}
}

// remove goes back to kube-proxy and removes the release, as docs/how-to/helm.md says.
func (h *charted) remove() {
	c := h.c
	h.step("back to kube-proxy", func() error {
		if err := h.helm("upgrade", "--reuse-values", "--set", "agent.enabled=false,cleanup.enabled=true"); err != nil {
			return err
		}
		_, err := c.Kubectl("", "-n", "kube-system", "patch", "daemonset", "kube-proxy", "--type=json", "--patch", `[{"op":"remove","path":"/spec/template/spec/affinity"}]`)
		return errors.Join(err, c.RolledOut("kube-system", "daemonset/kube-proxy"), c.RolledOut("kube-system", "daemonset/fairway-cleanup"))
	})
	if _, err := h.run("uninstall", "fairway", "-n", "kube-system"); err != nil {
		h.t.Error(err)
	}
	for _, n := range c.Nodes {
		if left, err := n.Leftovers(); err != nil || left != "" {
			h.t.Errorf("%s still has of Fairway: %s %v", n.Name, left, err)
		}
	}
	if out, err := c.Kubectl("", "get", "ipaddresspools", "-A", "-o", "name"); err != nil || out == "" {
		h.t.Errorf("pools are gone: %q, %v", out, err)
	}
}
