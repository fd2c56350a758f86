package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/lab/topology"
)

// proxyName precedes the names of modes that are kube-proxy's.
const proxyName = "kube-proxy "

// proxyMode is what kube-proxy calls a mode, and the variant of iptables that it
// is to find.
type proxyMode struct{ name, variant string }

// proxyModes are kube-proxy's, by the names of ours.
var proxyModes = map[string]proxyMode{
	"nftables":        {name: "nftables"},
	"ipvs":            {name: "ipvs", variant: "nft"},
	"iptables-nft":    {name: "iptables", variant: "nft"},
	"iptables-legacy": {name: "iptables", variant: "legacy"},
}

// proxyTimeout is how long kube-proxy may take to program everything: over five
// minutes in mode iptables by iptables-nft, with 10,000 Services.
const proxyTimeout = 15 * time.Minute

// proxyConfig is kube-proxy's defaults as far as they matter here: it syncs once
// a second at most.
const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %q, qps: 1000, burst: 1000}
hostnameOverride: %s
mode: %s
clusterCIDR: "%s,%s"
detectLocalMode: ClusterCIDR
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// startProxy starts kube-proxy in the agent's place.
func (a *agentProcess) startProxy(ctx context.Context) error {
	if err := a.run.nodeObject(ctx); err != nil {
		return err
	}
	file := filepath.Join(a.state, "config.yaml")
	// kube-proxy takes one range of each family.
	text := fmt.Sprintf(proxyConfig, a.run.api.kubeconfig, nodeName, a.mode.proxy.name, "10.128.0.0/10", topology.DefaultOptions().Pods6)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write configuration of kube-proxy: %w", err)
	}
	cmd, err := a.proxyCommand("--config", file)
	if err != nil {
		return err
	}
	a.began = time.Now()
	a.process, err = start(a.run.site.node.Host, "agent", a.run.options.Dir, cmd)
	return err
}

// nodeObject makes the Node without which kube-proxy waits before it begins.
func (r *run) nodeObject(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: r.site.node.IPv4().String()}}
	created, err := r.api.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create Node %s: %w", nodeName, err)
	}
	created.Status.Addresses = node.Status.Addresses
	if _, err := r.api.client.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update status of Node %s: %w", nodeName, err)
	}
	return nil
}

// proxyCommand is kube-proxy with arguments. It takes the iptables that it finds,
// so it is led to those of one variant.
func (a *agentProcess) proxyCommand(args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(a.run.options.KubeProxy, args...)
	if a.mode.proxy.variant == "" {
		return cmd, nil
	}
	dir := filepath.Join(a.state, "bin")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			real, err := exec.LookPath(family + "-" + a.mode.proxy.variant + suffix)
			if err != nil {
				return nil, fmt.Errorf("find iptables: %w", err)
			}
			if err := os.Symlink(real, filepath.Join(dir, family+suffix)); err != nil && !errors.Is(err, os.ErrExist) {
				return nil, fmt.Errorf("lead kube-proxy to %s: %w", real, err)
			}
		}
	}
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	return cmd, nil
}

// proxyProgrammed waits until kube-proxy has programmed both families, and
// returns when it says that this was.
func (a *agentProcess) proxyProgrammed(ctx context.Context) (at time.Time, err error) {
	client := http.Client{Transport: &http.Transport{DialContext: a.run.site.node.DialContext, DisableKeepAlives: true}}
	err = poll(ctx, proxyTimeout, 50*time.Millisecond, func() error {
		if err := a.alive(); err != nil {
			return permanent{err}
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10249/metrics", nil)
		if err != nil {
			return permanent{err}
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		at, err = lastSync(answer.Body)
		return errors.Join(err, answer.Body.Close())
	})
	if err != nil {
		return at, fmt.Errorf("wait for kube-proxy: %w (log: %s)", err, tail(a.log))
	}
	return at, nil
}

// lastSync reads from kube-proxy's metrics when it had programmed both families.
func lastSync(metrics io.Reader) (at time.Time, err error) {
	families := 0
	for lines := bufio.NewScanner(metrics); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if !strings.HasPrefix(name, "kubeproxy_sync_proxy_rules_last_timestamp_seconds{") {
			continue
		}
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return at, fmt.Errorf("read %s: %w", name, err)
		}
		if seconds == 0 {
			continue
		}
		families++
		if t := time.UnixMicro(int64(seconds * 1e6)); t.After(at) {
			at = t
		}
	}
	if families < 2 {
		return at, fmt.Errorf("kube-proxy has programmed %d of 2 families", families)
	}
	return at, nil
}

// cleanProxy takes out of the node what kube-proxy put there.
func (a *agentProcess) cleanProxy(ctx context.Context) error {
	cmd, err := a.proxyCommand("--cleanup")
	if err != nil {
		return err
	}
	cleanup, err := start(a.run.site.node.Host, "cleanup", a.run.options.Dir, cmd)
	if err != nil {
		return err
	}
	select {
	case <-cleanup.ended:
	case <-ctx.Done():
	}
	return cleanup.stop()
}
