//go:build drain

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
)

// TestLastEndpoint: the last endpoint of a Service goes and comes back, under both external
// traffic policies, on layer 2 and under a router. Meanwhile nobody announces its addresses, no
// node takes them over for a moment, and clients are refused: none is left hanging.
func TestLastEndpoint(t *testing.T) {
	for _, mode := range []string{"nftables", "userspace", "ebpf"} {
		for _, router := range []string{"", lab.RouterBird} {
			t.Run(mode+map[bool]string{true: "/layer2", false: "/router"}[router == ""], func(t *testing.T) {
				c := config("last-" + mode)
				c.Mode, c.Router = mode, router
				hosts := []string{"10.99.0.1", "fd00:99::1"}
				c.LoadBalancerRanges = []string{"10.99.0.1-10.99.0.9", "fd00:99::1-fd00:99::9"}
				if router == "" {
					hosts = []string{"172.30.200.1", "fd00:172:30::c801"}
					c.LoadBalancerRanges = []string{"172.30.200.1-172.30.200.9", "fd00:172:30::c801-fd00:172:30::c809"}
				}
				up(t, c)
				t.Cleanup(func() { agentsSaid(t, c.Name, "node1", "node2") })
				pods := hello(1)
				pods.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
				balance(t, c.Name, pods, strings.Join(hosts, ","), "false")
				client, err := lab.Client(c.Name)
				if err != nil {
					t.Fatal(err)
				}
				l := lastEndpoint{t, c.Name, hosts, router != "", client}
				for _, policy := range []string{"Cluster", "Local"} {
					l.under(policy)
				}
			})
		}
	}
}

type lastEndpoint struct {
	*testing.T
	name   string
	hosts  []string
	routed bool
	client kubernetes.Interface
}

// under has the endpoint go and come back under a policy.
func (l lastEndpoint) under(policy string) {
	l.Helper()
	body := fmt.Sprintf(`{"spec":{"externalTrafficPolicy":%q}}`, policy)
	if _, err := l.client.CoreV1().Services("default").Patch(l.Context(), "hello", types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		l.Fatal(err)
	}
	l.awaitAnnounced(policy, true)
	begun := l.settled()
	fates := l.keepAsking()
	l.scale(0)
	l.awaitAnnounced(policy, false)
	time.Sleep(500 * time.Millisecond) // longer than a node takes to take over
	if now := l.begun(); now != begun {
		l.Errorf("%s: %d times a node began to answer while there was no endpoint", policy, now-begun)
	}
	if !l.routed { // a client that asks the link anew gets no answer
		command(l.T, "lab", "exec", "--name", l.name, "client", "--", "ip", "neigh", "flush", "all")
	}
	l.fail(policy)
	l.scale(1)
	l.awaitAnnounced(policy, true)
	if now := l.begun(); !l.routed && now != begun+len(l.hosts) {
		l.Errorf("%s: %d times a node began to answer for %d addresses that came back", policy, now-begun, len(l.hosts))
	}
	for fate, n := range fates() {
		if fate != "answered" && fate != "refused" && fate != "unreachable" || n == 0 {
			l.Errorf("%s: %d clients: %s", policy, n, fate)
		}
	}
}

// fail connects to the addresses, and expects that to fail soon.
func (l lastEndpoint) fail(policy string) {
	l.Helper()
	ns, err := netns.Open(topology.HostNamespace(l.name, "client"))
	if err != nil {
		l.Fatal(err)
	}
	defer ns.Close()
	for _, host := range l.hosts {
		if fate := fateOf(&place{ns: ns}, net.JoinHostPort(host, "80")); fate != "refused" && fate != "unreachable" {
			l.Errorf("%s: a client of %s, which nobody announces: %s", policy, host, fate)
		}
	}
}

// awaitAnnounced waits until the addresses are announced and reached, or neither.
func (l lastEndpoint) awaitAnnounced(policy string, yes bool) {
	l.Helper()
	for _, host := range l.hosts {
		eventually(l.T, fmt.Sprintf("%s: %s is announced: %v", policy, host, yes), func() bool {
			if l.routed {
				return (nextHops(l.T, l.name, host) > 0) == yes
			}
			return (announcer(l.T, l.name, host) != "") == yes
		})
		if yes {
			eventually(l.T, policy+": "+host+" is reached", func() bool { return reachesHello(l.name, host) })
		}
	}
}

func (l lastEndpoint) scale(replicas int) {
	l.Helper()
	body := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	if _, err := l.client.AppsV1().Deployments("default").Patch(l.Context(), "hello", types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		l.Fatal(err)
	}
}

// begun counts how often nodes have begun to answer on layer 2.
func (l lastEndpoint) begun() (n int) {
	l.Helper()
	for _, node := range []string{"node1", "node2"} {
		text, err := os.ReadFile(filepath.Join(lab.Dir(l.name), "agent-"+node+".log"))
		if err != nil {
			l.Fatal(err)
		}
		n += strings.Count(string(text), "this node answers for the address now")
	}
	return n
}

// settled waits until no address moves any more, as to the node of the endpoint.
func (l lastEndpoint) settled() (begun int) {
	l.Helper()
	const still = 20
	for same, now := 0, 0; same < still; time.Sleep(100 * time.Millisecond) { // still for a while is what is waited for
		if now = l.begun(); now != begun {
			begun, same = now, 0
		}
		same++
	}
	return begun
}

// keepAsking connects to the addresses again and again until what it returns is called, which
// counts what became of that.
func (l lastEndpoint) keepAsking() (stop func() map[string]int) {
	l.Helper()
	ns, err := netns.Open(topology.HostNamespace(l.name, "client"))
	if err != nil {
		l.Fatal(err)
	}
	ctx, cancel := context.WithCancel(l.Context())
	var group sync.WaitGroup
	var mu sync.Mutex
	fates := map[string]int{}
	for _, host := range l.hosts {
		group.Go(func() {
			for ctx.Err() == nil {
				fate := fateOf(&place{ns: ns}, net.JoinHostPort(host, "80"))
				mu.Lock()
				fates[fate]++
				mu.Unlock()
				pause := 20 * time.Millisecond
				if fate == "unreachable" {
					pause = 2 * time.Second // routers say it once a second
				}
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	return func() map[string]int {
		cancel()
		group.Wait()
		if err := ns.Close(); err != nil {
			l.Error(err)
		}
		l.Log(fates)
		return fates
	}
}

// fateOf is what becomes of a client's connection. A client whose neighbor doesn't answer gives
// up by itself.
func fateOf(from *place, address string) string {
	const wait = 8 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	conn, err := from.dial(ctx, "tcp", address)
	connected := err == nil
	if connected {
		_, _, err = question(conn, wait)
		err = errors.Join(err, conn.Close())
	}
	var timeout net.Error
	switch {
	case err == nil:
		return "answered"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF):
		return "refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("left hanging, connected: %v", connected)
	}
	return err.Error()
}
