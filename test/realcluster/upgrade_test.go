//go:build realcluster

package realcluster

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUpgrade upgrades the last release's chart and image to today's in each mode, and
// goes back, under load. With today's, clients get the answers that kube-proxy gave; the last
// release's may be otherwise.
func TestUpgrade(t *testing.T) {
	last := os.Getenv("FAIRWAY_REALCLUSTER_LAST")
	if last == "" {
		t.Fatal("FAIRWAY_REALCLUSTER_LAST names a folder with the last release's chart and program: `make check NAME=real-cluster` makes it")
	}
	w := startWalk(t, Options{Last: filepath.Join(last, "fairway")})
	defer hold(t, w.c)
	h := &charted{t: t, c: w.c}
	var was string
	h.must(h.pack(filepath.Join(last, "chart"), &was))
	h.must(h.pack(filepath.Join(w.c.options.Deploy, "chart"), &h.archive))
	w.mode = "iptables" // as kubeadm's ConfigMap says
	release := func(verb, archive, tag string) error {
		if _, err := h.run(verb, "fairway", archive, "-n", "kube-system", "--set", "image.repository="+FairwayImage+",image.tag="+tag,
			"--set", "agent.existingConfigMap=kube-proxy,agent.ebpf=true"); err != nil {
			return err
		}
		return w.c.RolledOut("kube-system", "daemonset/fairway")
	}
	w.step("from kube-proxy to the last release", loseNothing, func() error {
		if err := release("install", was, LastTag); err != nil {
			return err
		}
		return errors.Join(h.stopKubeProxy(), w.c.served())
	})
	for mode := range strings.FieldsSeq(cmp.Or(os.Getenv("FAIRWAY_REALCLUSTER_MODES"), "iptables nftables ebpf")) {
		if w.mode != mode {
			w.mode = mode
			w.loaded("the last release, to "+mode+" mode", loseNothing, func() error { return w.c.SetMode(mode) })
		}
		w.step(mode+": upgrade", loseNothing, func() error { return release("upgrade", h.archive, FairwayTag) })
		w.loaded(mode+": back to the last release", loseNothing, func() error { return release("upgrade", was, LastTag) })
	}
}
