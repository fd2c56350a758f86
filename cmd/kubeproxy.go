package cmd

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

	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/config"
)

// kubeProxy is one on this machine that shall be in step before what Fairway left
// is removed.
type kubeProxy struct{ address, config string }

func (k *kubeProxy) add(flags *pflag.FlagSet) {
	const own = "127.0.0.1:10249"
	flags.StringVar(&k.address, "after-kube-proxy", own, "first wait until kube-proxy has all Services in force, as its metrics at this `address` tell; leave what its mode uses")
	flags.Lookup("after-kube-proxy").NoOptDefVal = own
	flags.StringVar(&k.config, "kube-proxy-config", "", "kube-proxy's configuration `file`, which may give the metrics another address; it needn't be there")
}

// kubeProxyPatience is between one look at kube-proxy and the next.
const kubeProxyPatience = time.Second

// wait returns when kube-proxy is in step, with its mode; or with the error of ctx.
func (k *kubeProxy) wait(ctx context.Context, out io.Writer) (mode string, err error) {
	address, err := k.metrics()
	if err != nil {
		return "", err
	}
	said, steady := "", false
	for {
		mode, err := ask(ctx, address)
		switch {
		case err == nil && steady:
			fmt.Fprintf(out, "kube-proxy: in step, in %s mode\n", mode)
			return mode, nil
		case err == nil: // one IP family at least; the other comes at the same time
			steady = true
		default:
			steady = false
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
		case <-time.After(kubeProxyPatience):
		}
	}
}

// metrics is where kube-proxy shows its metrics: where its configuration says, if
// there is one.
func (k *kubeProxy) metrics() (string, error) {
	if k.config == "" {
		return k.address, nil
	}
	c, _, err := config.Read(k.config)
	if errors.Is(err, fs.ErrNotExist) {
		return k.address, nil
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

// The errors of ask.
var (
	errFairwayThere = errors.New("it is Fairway that answers")
	errNotSynced    = errors.New("it hasn't written any rules yet")
)

// ask asks kube-proxy whether it has all Services in force. /healthz doesn't tell:
// it is well from the start.
func ask(ctx context.Context, address string) (mode string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	metrics, err := fetch(ctx, address, "/metrics")
	if err != nil {
		return "", err
	}
	if err := synced(metrics); err != nil {
		return "", err
	}
	return fetch(ctx, address, "/proxyMode")
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

// lastSynced is when kube-proxy last brought the kernel in step, of each family
// since 1.33.
const lastSynced = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"

// synced looks into kube-proxy's metrics.
func synced(metrics string) error {
	ok := false
	for lines := bufio.NewScanner(strings.NewReader(metrics)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "fairway_") {
			return errFairwayThere
		}
		if !strings.HasPrefix(line, lastSynced) {
			continue
		}
		at, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return fmt.Errorf("read %q: %w", line, err)
		}
		if at <= 0 {
			return errNotSynced
		}
		ok = true
	}
	if !ok {
		return errNotSynced
	}
	return nil
}
