package deploy_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/cmd"
)

// playFairway makes the test binary play Fairway.
const playFairway = "FAIRWAY_TEST_PLAY_FAIRWAY"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(playFairway) != "":
		os.Exit(cmd.Main())
	case os.Getenv(containerVariable) != "":
		fmt.Fprintln(os.Stderr, "become a container:", become(os.Getenv(containerVariable)))
		os.Exit(125)
	}
	os.Exit(m.Run())
}

const (
	recording = "1.36" // of a real API server's objects, and of them:
	nodeName  = "worker-1"
	podAddr   = "10.244.1.5"
	shopAddr  = "10.96.1.80" // of the Service shop/web
	apiToken  = "the-account's-token"
)

// daemonPod is the pod that the manifests in a folder run.
func daemonPod(t *testing.T, folder string) *corev1.PodSpec {
	t.Helper()
	return &find[appsv1.DaemonSet](build(t, folder), "fairway").Spec.Template.Spec
}

// TestPod runs the pod of the DaemonSet as a container runtime would: its
// capabilities and no others, nothing to write to but its volumes, the network
// of the host, the account's token, the role of kube-proxy, and kube-proxy's own
// ConfigMap as kubeadm writes it. While it runs, the ConfigMap changes modes.
func TestPod(t *testing.T) {
	pod := daemonPod(t, "kubeadm")
	// The rest of what the manifest gives is for other modes, and for
	// iptables-legacy.
	pod.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
	nftables := listing{[]string{"nft", "list", "ruleset"}, "table inet fairway"}
	iptables := listing{[]string{"iptables-save", "-t", "nat"}, "KUBE-SERVICES"}
	for _, test := range []struct {
		mode      string
		listing   listing
		to        string
		then      listing
		inCluster bool
	}{
		{"nftables", nftables, "iptables", iptables, true},
		{"iptables", iptables, "nftables", nftables, false},
	} {
		t.Run(test.mode, func(t *testing.T) {
			h := newHost(t)
			h.serve(recording)
			environ := h.configure(test.mode, test.inCluster)
			address := netip.AddrPortFrom(netip.MustParseAddr(shopAddr), 80).String()
			h.run(pod, &pod.InitContainers[0], environ...).wait()
			agent := h.run(pod, &pod.Containers[0], environ...)
			h.answers(agent, address, "web")
			h.lists(test.listing, true)
			h.playTroubles(agent, address)

			held, _, err := h.connect(address)
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			h.configure(test.to, test.inCluster)
			h.lists(test.then, true)
			h.lists(test.listing, false)
			h.answers(agent, address, "web")
			held.lives(t, "after another mode")

			agent.kill()
			if got, err := h.ask(address); got != "web" {
				t.Errorf("after a kill: %q, %v", got, err)
			}
			h.do("delete services shop/web")
			agent = h.run(pod, &pod.Containers[0], environ...)
			h.answers(agent, address, "")
			held.lives(t, "after the Service")
			h.role()
		})
	}
}

// TestPodEBPF runs the pod with the component ebpf: without it, the mode lacks
// privileges, and says so.
func TestPodEBPF(t *testing.T) {
	h := newHost(t)
	h.serve(recording)
	environ := h.configure("ebpf", true)
	h.mountBPF()
	pod := daemonPod(t, "testdata/ebpf")
	h.run(pod, &pod.InitContainers[0], environ...).wait()
	agent := h.run(pod, &pod.Containers[0], environ...)
	h.answers(agent, shopAddr+":80", "web")
	h.role()
	agent.kill()

	// Another process finds all that this one left, with the capabilities of the manifest.
	held, _, err := h.connect(shopAddr + ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	h.do("delete services shop/web")
	agent = h.run(pod, &pod.Containers[0], environ...)
	h.answers(agent, shopAddr+":80", "")
	h.healthy(agent)
	held.lives(t, "after a restart")
	if log := agent.log.String(); strings.Contains(log, "programming failed") {
		t.Errorf("the second process says:\n%s", log)
	}
	agent.kill()

	plain := daemonPod(t, "kubeadm")
	agent = h.run(plain, &plain.Containers[0], environ...)
	select {
	case <-agent.ended:
	case <-time.After(60 * time.Second):
		t.Fatalf("goes on without privileges\n%s", agent.log)
	}
	if log := agent.log.String(); !strings.Contains(log, "CAP_BPF") {
		t.Errorf("without privileges it says:\n%s", log)
	}
}
