//go:build !agentonly

package cmd

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/test/wait"
)

// webAddress is that of all Ingresses: the first of the range.
const webAddress = "10.77.0.100"

// TestEveryMachineServesHosts: a host with TLS is served by every machine, with the server
// unplugged and each of the others, too. The requests that fail are those that were on
// their way to the machine that died, and those of the moment until its address has moved.
func TestEveryMachineServesHosts(t *testing.T) {
	t.Parallel()
	c := hostOfThree(t)
	load := c.startLoad("https://shop.example.com/", webAddress+":443")
	for _, name := range []string{"m3", "m2", "m1"} {
		before := load.begin()
		c.plug(name, false)
		c.stillServed(load, name)
		c.plug(name, true)
		if name != "m1" {
			c.settlesReady(name)
		}
		after := load.counts()
		t.Logf("%s was unplugged: %d requests, of which %d failed, the longest time without an answer %s", name, after.all-before.all, after.failed-before.failed, after.gap)
	}
	load.end()
}

// hostOfThree is three machines, with a process on each and a host with TLS.
func hostOfThree(t *testing.T) *joined {
	t.Helper()
	n := newNetwork(t)
	c := &joined{network: n, address: netip.MustParseAddr(webAddress)}
	for _, name := range []string{"m1", "m2", "m3"} {
		n.hosts[name].start(asProcess + "=" + name + " exec " + os.Args[0])
		n.hosts[name].run("install -m 755 fairway /usr/local/bin/")
	}
	c.up("fairway up --bind-address 10.77.0.11 --load-balancer-range 10.77.0.100-10.77.0.110")
	n.hosts["m2"].start(c.joinLine)
	n.hosts["m3"].start(c.joinLine)
	for _, name := range []string{"m2", "m3"} {
		c.settlesReady(name)
		c.servesGateways(name)
	}
	n.hosts["m1"].run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=shop.example.com -keyout key.pem -out cert.pem 2>/dev/null")
	for _, line := range hostsOfREADME(t) {
		if out := n.hosts["m1"].run(line); !strings.Contains(out, "shop") {
			t.Errorf("%s prints\n%s", line, out)
		}
	}
	return c
}

// hostsOfREADME are the commands by which README.md makes a name with HTTPS.
func hostsOfREADME(t *testing.T) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "A name with HTTPS is one line more.")
	_, block, _ := strings.Cut(after, "```sh\n")
	block, _, found := strings.Cut(block, "```")
	if !found || !strings.Contains(block, " expose shop ") {
		t.Fatal("README.md makes no name with HTTPS")
	}
	for line := range strings.Lines(block) {
		command, _, _ := strings.Cut(line, "#")
		lines = append(lines, strings.TrimSpace(command))
	}
	return lines
}

// servesGateways waits until a machine has said that it serves Gateways.
func (c *joined) servesGateways(name string) {
	c.t.Helper()
	eventually(c.t, name+" serves Gateways", func() bool {
		l, err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(c.t.Context(), "fairway-gateway-"+name, metav1.GetOptions{})
		return err == nil && holder(l) == name
	})
}

func holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// settlesReady waits until a machine's Node is ready.
func (c *joined) settlesReady(name string) {
	c.t.Helper()
	eventually(c.t, name+" is ready", func() bool { return strings.Contains(c.state(), name+" True") })
}

// stillServed waits until many requests in a row were answered by machines other than one.
func (c *joined) stillServed(load *load, without string) {
	c.t.Helper()
	eventually(c.t, "the host answers without "+without, func() bool { return load.row(without) >= 200 })
}

// load is requests of the laptop, one after the other on connections of their own.
type load struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu     sync.Mutex
	now    counts
	answer time.Time // the last good one
	recent []string  // who gave the last answers; "" for a failure
	errs   []string
}

// counts are how requests fared.
type counts struct {
	all, failed int
	gap         time.Duration // the longest without an answer since begin
}

// startLoad asks for a URL at an address, 20 clients at a time.
func (c *joined) startLoad(url, at string) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel}
	c.t.Cleanup(l.end)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return c.hosts["laptop"].dial(ctx, network, at)
	}
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	eventually(c.t, url+" answers", func() bool { _, err := askOnce(ctx, &client, url); return err == nil })
	l.answer = time.Now()
	for range 20 {
		l.ended.Go(func() {
			for range wait.Every(ctx, 40*time.Millisecond) {
				name, err := askOnce(ctx, &client, url)
				if ctx.Err() == nil {
					l.took(name, err)
				}
			}
		})
	}
	return l
}

func askOnce(ctx context.Context, client *http.Client, url string) (string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(q)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("answer %s", answer.Status)
	}
	return strings.TrimSpace(string(body)), err
}

func (l *load) took(name string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now.all++
	if err != nil {
		l.now.failed++
		l.errs = append(l.errs, err.Error())
		name = ""
	} else {
		l.now.gap = max(l.now.gap, time.Since(l.answer))
		l.answer = time.Now()
	}
	l.recent = append(l.recent[max(0, len(l.recent)-999):], name)
}

func (l *load) counts() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// begin is counts, and measures the longest time without an answer from now on.
func (l *load) begin() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now.gap = 0
	return l.now
}

// row is how many of the last answers were good, none by a machine.
func (l *load) row(without string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, name := range slices.Backward(l.recent) {
		if name == "" || name == without {
			return len(l.recent) - 1 - i
		}
	}
	return len(l.recent)
}

func (l *load) end() { l.cancel(); l.ended.Wait() }
