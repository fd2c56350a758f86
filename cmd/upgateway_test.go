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

	"github.com/fairway-net/fairway/test/netnstest"
	"github.com/fairway-net/fairway/test/wait"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/fairway-net/fairway/internal/netns"
)

// upRig is an `up` that serves Gateways, in a network of its own.
type upRig struct {
	*testing.T
	ns       *netns.NS
	dir      string
	args     []string
	without  []uintptr // capabilities that it can't have
	life     string    // of the Gateways' credential, if it is another than usual
	process  *exec.Cmd
	out      output
	core     *kubernetes.Clientset
	gateways *versioned.Clientset
}

func newUpRig(t *testing.T, args ...string) *upRig {
	t.Helper()
	ns := netnstest.New(t)
	err := ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		address := &netlink.Addr{IPNet: netlink.NewIPNet(net.IPv4(192, 0, 2, 1))}
		return errors.Join(err, netlink.LinkSetUp(lo), netlink.AddrAdd(lo, address))
	})
	if err != nil {
		t.Fatal(err)
	}
	u := &upRig{T: t, ns: ns, dir: t.TempDir(), args: args}
	t.Cleanup(u.stop)
	return u
}

// start runs it until it serves.
func (u *upRig) start() {
	u.Helper()
	u.process = exec.Command(os.Args[0], append([]string{"up", "--data-dir", filepath.Join(u.dir, "data"), "--state-dir", u.state(), "--secure-port", "6443", "--node-name", "node"}, u.args...)...)
	u.process.Env = append(os.Environ(), asFairway+"=1", credentialLife+"="+u.life)
	u.process.Stdout, u.process.Stderr = &u.out, &u.out
	u.process.WaitDelay = time.Second // Gateways' processes may go on
	before := strings.Count(u.out.String(), "To stop: ")
	err := u.ns.StartAs(u.process, "node", func() error {
		var errs []error
		for _, c := range u.without {
			errs = append(errs, unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		u.Fatal(err)
	}
	untilGood(u.T, &u.out, func() error {
		if strings.Count(u.out.String(), "To stop: ") == before {
			return errors.New("it hasn't started")
		}
		return nil
	})
	config := u.client(filepath.Join(u.dir, "data", "admin.kubeconfig"))
	u.core, u.gateways = kubernetes.NewForConfigOrDie(config), versioned.NewForConfigOrDie(config)
}

func (u *upRig) state() string { return filepath.Join(u.dir, "state") }

// client is for the server in the rig's network.
func (u *upRig) client(kubeconfig string) *rest.Config {
	u.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		u.Fatal(err)
	}
	config.Dial = dialIn(u.ns)
	config.ContentType = "application/json"
	return config
}

func (u *upRig) stop() {
	if u.process == nil {
		return
	}
	if u.Failed() { // what it was doing tells why
		_ = u.process.Process.Signal(syscall.SIGQUIT)
		_ = u.process.Wait() // ended by the signal
		u.Logf("it was doing:\n%s", u.out.String())
		return
	}
	_ = u.process.Process.Signal(syscall.SIGTERM)
	if err := u.process.Wait(); err != nil {
		u.Errorf("it ended: %v\n%s", err, u.out.String())
	}
	u.process = nil
}

func (u *upRig) kill() {
	_ = u.process.Process.Kill()
	_ = u.process.Wait() // killed
	u.process = nil
}

// serves waits until a Gateway answers.
func (u *upRig) serves(name string) {
	u.Helper()
	untilGood(u.T, &u.out, func() error { return askGateway(u.T, u.ns, u.core, name) })
}

// TestUpServesGatewaysApart: a Gateway of `up` whose process is killed takes nothing
// else with it, and serves again.
func TestUpServesGatewaysApart(t *testing.T) {
	t.Parallel()
	u := newUpRig(t)
	u.start()
	for _, name := range []string{"a", "b"} {
		makeGateway(t, u.gateways, name)
		u.serves(name)
	}
	first := u.gatewayPID("default/a")
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := askGateway(t, u.ns, u.core, "b"); err != nil {
		t.Errorf("another Gateway: %v", err)
	}
	if _, err := u.core.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the API server: %v", err)
	}
	u.serves("a")
	if again := u.gatewayPID("default/a"); again == first {
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
	at, err := gatewayAddress(t, core, name)
	if err != nil {
		return err
	}
	return askAt(t, ns, at)
}

func gatewayAddress(t *testing.T, core kubernetes.Interface, name string) (string, error) {
	s, err := core.CoreV1().Services("default").Get(t.Context(), name+"-fairway", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", s.Spec.Ports[0].TargetPort.String()), nil
}

func askAt(t *testing.T, ns *netns.NS, at string) error {
	_, err := ledTo(t, ns, at)
	return err
}

// ledTo asks at an address, and returns where the answer leads.
func ledTo(t *testing.T, ns *netns.NS, at string) (string, error) {
	client := http.Client{
		Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: dialIn(ns), DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(q)
	if err != nil {
		return "", err
	}
	_ = answer.Body.Close() // only the headers count
	if answer.StatusCode != http.StatusFound {
		return "", fmt.Errorf("answer %s", answer.Status)
	}
	return answer.Header.Get("Location"), nil
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

// gatewayPID waits for the process of a Gateway among the children of `up`: one of an
// earlier `up` may serve before.
func (u *upRig) gatewayPID(gateway string) (pid int) {
	u.Helper()
	untilGood(u.T, &u.out, func() error {
		for _, pid = range childrenOf(u.T, u.process.Process.Pid) {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err == nil && strings.Contains(string(line), "--only\x00"+gateway+"\x00") {
				return nil
			}
		}
		return fmt.Errorf("no process for Gateway %s", gateway)
	})
	return pid
}

func childrenOf(t *testing.T, parent int) []int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // of a thread that has ended
		}
		for _, id := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(id)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, pid)
		}
	}
	return all
}

func untilGood(t *testing.T, out *output, do func() error) {
	t.Helper()
	for late := range wait.Tries(time.Minute) {
		err := do()
		if err == nil {
			return
		}
		if late {
			t.Fatalf("%v\n%s", err, out.String())
		}
	}
}
