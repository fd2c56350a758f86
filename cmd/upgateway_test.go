//go:build !agentonly

package cmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/fairway-net/fairway/internal/netns"
)

// TestUpServesGatewaysApart: a Gateway of `up` whose process is killed takes nothing
// else with it, and serves again.
func TestUpServesGatewaysApart(t *testing.T) {
	t.Parallel()
	ns, err := netns.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	dir := t.TempDir()
	up := exec.Command(os.Args[0], "up", "--data-dir", filepath.Join(dir, "data"), "--state-dir", filepath.Join(dir, "state"), "--secure-port", "0", "--node-name", "node")
	up.Env = append(os.Environ(), asFairway+"=1")
	var out output
	up.Stdout, up.Stderr = &out, &out
	err = ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		address := &netlink.Addr{IPNet: netlink.NewIPNet(net.IPv4(192, 0, 2, 1))}
		return errors.Join(err, netlink.LinkSetUp(lo), netlink.AddrAdd(lo, address), up.Start())
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = up.Process.Signal(syscall.SIGTERM)
		if err := up.Wait(); err != nil {
			t.Errorf("it ended: %v\n%s", err, out.String())
		}
	}()
	untilGood(t, &out, func() error {
		if !strings.Contains(out.String(), "To stop: ") {
			return errors.New("it hasn't started")
		}
		return nil
	})
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "data", "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.Dial = dialIn(ns)
	config.ContentType = "application/json"
	core, gateways := kubernetes.NewForConfigOrDie(config), versioned.NewForConfigOrDie(config)
	ask := map[string]func() error{}
	for _, name := range []string{"a", "b"} {
		makeGateway(t, gateways, name)
		ask[name] = func() error { return askGateway(t, ns, core, name) }
		untilGood(t, &out, ask[name])
	}
	first := gatewayPID(t, up.Process.Pid, "default/a")
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := ask["b"](); err != nil {
		t.Errorf("another Gateway: %v", err)
	}
	if _, err := core.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the API server: %v", err)
	}
	untilGood(t, &out, ask["a"])
	if again := gatewayPID(t, up.Process.Pid, "default/a"); again == first {
		t.Errorf("process %d still serves", first)
	}
}

// makeGateway makes a Gateway that redirects every request.
func makeGateway(t *testing.T, client versioned.Interface, name string) {
	t.Helper()
	_, err := client.GatewayV1().Gateways("default").Create(t.Context(), &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       gatewayv1.GatewaySpec{GatewayClassName: "fairway", Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	host := gatewayv1.PreciseHostname("elsewhere.example")
	_, err = client.GatewayV1().HTTPRoutes("default").Create(t.Context(), &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: gatewayv1.ObjectName(name)}}},
			Rules: []gatewayv1.HTTPRouteRule{{Filters: []gatewayv1.HTTPRouteFilter{
				{Type: gatewayv1.HTTPRouteFilterRequestRedirect, RequestRedirect: &gatewayv1.HTTPRequestRedirectFilter{Hostname: &host}},
			}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// askGateway asks a Gateway where the machine listens for it.
func askGateway(t *testing.T, ns *netns.NS, core kubernetes.Interface, name string) error {
	s, err := core.CoreV1().Services("default").Get(t.Context(), name+"-fairway", metav1.GetOptions{})
	if err != nil {
		return err
	}
	client := http.Client{
		Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: dialIn(ns), DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", s.Spec.Ports[0].TargetPort.String()), nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(q)
	if err != nil {
		return err
	}
	_ = answer.Body.Close() // only the status counts
	if answer.StatusCode != http.StatusFound {
		return fmt.Errorf("answer %s", answer.Status)
	}
	return nil
}

// dialIn connects from a namespace.
func dialIn(ns *netns.NS) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = ns.Do(func() (err error) {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
}

// gatewayPID finds the process of a Gateway among the children of another one.
func gatewayPID(t *testing.T, parent int, gateway string) int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // of a thread that has ended
		}
		for _, id := range strings.Fields(string(text)) {
			line, err := os.ReadFile("/proc/" + id + "/cmdline")
			if err == nil && strings.Contains(string(line), "--only\x00"+gateway+"\x00") {
				pid, err := strconv.Atoi(id)
				if err != nil {
					t.Fatal(err)
				}
				return pid
			}
		}
	}
	t.Fatalf("no process for Gateway %s", gateway)
	return 0
}

func untilGood(t *testing.T, out *output, do func() error) {
	t.Helper()
	err := do()
	for end := time.Now().Add(time.Minute); err != nil; err = do() {
		if time.Now().After(end) {
			t.Fatalf("%v\n%s", err, out.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}
