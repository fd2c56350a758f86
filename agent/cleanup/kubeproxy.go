package cleanup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/fairway-net/fairway/config/kubeproxy"
)

// KubeProxy is one on this machine that shall be in step before what Fairway left
// is removed.
type KubeProxy struct{ Address, Config string }

// kubeProxyPollPeriod is between one look at kube-proxy and the next, and
// otherFamily how long the second of its IP families may come after the first, if its
// metrics don't tell them apart: the time after which it syncs both again
// (syncPeriod's default).
const (
	kubeProxyPollPeriod = time.Second
	otherFamily         = 30 * time.Second
)

// Wait returns when kube-proxy is in step, with its mode; or with the error of ctx.
func (k *KubeProxy) Wait(ctx context.Context, out io.Writer) (mode string, err error) {
	address, err := k.metrics()
	if err != nil {
		return "", err
	}
	said, since := "", time.Time{} // of the first look that found it in step
	for {
		mode, byFamily, err := ask(ctx, address)
		switch {
		case err != nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case byFamily || time.Since(since) > otherFamily:
			fmt.Fprintf(out, "kube-proxy: in step, in %s mode\n", mode)
			return mode, nil
		default:
			err = errOneFamily
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("wait for kube-proxy: %w", errors.Join(ctx.Err(), err))
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			fmt.Fprintf(out, "kube-proxy: waiting: %s\n", said)
		}
		select {
		case <-ctx.Done():
		case <-time.After(kubeProxyPollPeriod):
		}
	}
}

// metrics is where kube-proxy shows its metrics: where its configuration says, if
// there is one.
func (k *KubeProxy) metrics() (string, error) {
	if k.Config == "" {
		return k.Address, nil
	}
	c, _, err := kubeproxy.Read(k.Config)
	if errors.Is(err, fs.ErrNotExist) {
		return k.Address, nil
	}
	if err != nil {
		return "", fmt.Errorf("--kube-proxy-config: %w", err)
	}
	return local(c.MetricsBindAddress), nil
}

// local is an address of this machine's at which what listens at an address answers.
func local(address string) string {
	host, port, err := net.SplitHostPort(address)
	a, parseErr := netip.ParseAddr(host)
	if err != nil || parseErr == nil && !a.IsUnspecified() {
		return address
	}
	if parseErr == nil && a.Is6() {
		return net.JoinHostPort("::1", port)
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// Why kube-proxy is waited for.
var (
	errFairwayThere = errors.New("it is Fairway that answers")
	errNotSynced    = errors.New("it hasn't written the rules of each IP family yet")
	errOneFamily    = errors.New("it has written rules, but doesn't say whether those of both IP families")
)

// ask asks kube-proxy whether it has all Services in force, and whether what it
// says is of each IP family. /healthz doesn't tell: it is well from the start.
func ask(ctx context.Context, address string) (mode string, byFamily bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	metrics, err := fetch(ctx, address, "/metrics")
	if err != nil {
		return "", false, err
	}
	if byFamily, err = synced(metrics); err != nil {
		return "", false, err
	}
	mode, err = fetch(ctx, address, "/proxyMode")
	return mode, byFamily, err
}

func fetch(ctx context.Context, address, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close() //nolint:errcheck // of a response
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, answer.Status)
	}
	return string(body), err
}

// lastSynced is when kube-proxy last brought the kernel in step, and lastQueued when
// it was last asked to: since 1.33 of each IP family that it serves. It writes the
// rules of IPv6 when those of IPv4 are written, which may take seconds
// (pkg/proxy/metaproxier: OnServiceSynced); but it has noted of both that they are
// asked for by then (SyncLoop).
const (
	lastSynced = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
	lastQueued = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"
)

// synced looks into kube-proxy's metrics.
func synced(metrics string) (byFamily bool, err error) {
	done, asked := map[string]bool{}, map[string]bool{} // by labels
	for lines := bufio.NewScanner(strings.NewReader(metrics)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "fairway_") {
			return false, errFairwayThere
		}
		name, labels, _ := strings.Cut(line[:max(0, strings.LastIndexByte(line, ' '))], "{")
		var noted map[string]bool
		switch name {
		case lastSynced:
			noted = done
		case lastQueued:
			noted = asked
		default:
			continue
		}
		at, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return false, fmt.Errorf("read %q: %w", line, err)
		}
		noted[labels] = at > 0
		byFamily = byFamily || labels != ""
	}
	for labels := range asked {
		if !done[labels] {
			return false, errNotSynced
		}
	}
	for _, ok := range done {
		if !ok {
			return false, errNotSynced
		}
	}
	if len(done) == 0 {
		return false, errNotSynced
	}
	return byFamily, nil
}
