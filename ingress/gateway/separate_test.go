//go:build !race

package gateway

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"github.com/fairway-net/fairway/test/wait"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	ingress "github.com/fairway-net/fairway/ingress/compile"
)

const otherPort = 20002 // of the Gateway "other"

// TestSeparateGateways: each Gateway has a process of its own. If one is killed, or
// has as many slow clients as it takes, the other one serves on, and the killed one is
// back by itself. If what supervises them is killed, all serve on, and the next one
// takes their place.
func TestSeparateGateways(t *testing.T) {
	c := newCluster(t)
	c.fill()
	c.ready = []*pod{c.start()}
	c.writeSlices()
	c.makeOther()
	c.startGateway(os.Args[0])
	supervisor := c.serving()
	c.await("a gateway that is ready", isReady)
	processes := c.processes()
	if len(processes) != 2 {
		t.Fatalf("processes of Gateways: %v", processes)
	}
	own := map[int]bool{processes["shop/gw"]: true, processes["shop/other"]: true, supervisor.Pid: true}
	if len(own) != 3 {
		t.Fatalf("processes %v of %d", processes, supervisor.Pid)
	}
	for _, port := range []int{plainPort, otherPort} {
		c.must(asked(port))
	}

	kept := c.dial(otherPort)
	c.must(kept.ask())
	c.must(kill(processes["shop/gw"]))
	for range 100 { // while the other one is away and comes back
		c.must(asked(otherPort))
		c.must(kept.ask())
	}
	c.await("the Gateway that was killed", func(context.Context) bool { return asked(plainPort) == nil })
	again := c.processes()
	if again["shop/other"] != processes["shop/other"] || again["shop/gw"] == processes["shop/gw"] {
		t.Errorf("processes were %v, are %v", processes, again)
	}
	if page := get(c.Context(), "/metrics"); !strings.Contains(page, "fairway_gateway_restarts_total{gateway=\"shop/gw\"} 1\n") ||
		!strings.Contains(page, `fairway_gateway_requests_total{class="2xx",gateway="shop/other",socket="shop/other:80"}`) {
		t.Errorf("metrics: %s", page)
	}

	for range 500 { // who never say what they want
		slow, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", plainPort))
		c.must(err)
		defer func() { _ = slow.Close() }()
		_, err = slow.Write([]byte("GET / HTTP/1.1\r\nHost: web.exam"))
		c.must(err)
	}
	for range 100 {
		c.must(asked(otherPort))
	}

	c.must(supervisor.Kill())
	for range 20 {
		c.must(asked(otherPort))
	}
	c.startGateway(os.Args[0])
	c.serving()
	c.await("a gateway that is ready", isReady)
	for range 20 {
		c.must(asked(otherPort))
		c.must(asked(plainPort))
	}
	now := c.processes()
	if now["shop/other"] == again["shop/other"] || len(now) != 2 {
		t.Errorf("processes were %v, are %v", again, now)
	}
	c.must(kept.ask()) // the last request of its connection
}

// makeOther makes another Gateway, with a route to the same Service.
func (c *cluster) makeOther() {
	c.Helper()
	_, err := c.gateway.GatewayV1().Gateways(shop).Create(c.Context(), parse[gatewayv1.Gateway](c, `
metadata: {name: other}
spec: {gatewayClassName: fairway, listeners: [{name: http, port: 80, protocol: HTTP}]}
`), metav1.CreateOptions{})
	c.must(err)
	_, err = c.core.CoreV1().Services(shop).Create(c.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: ingress.ServiceName("other"), Labels: map[string]string{gatewayv1.GatewayNameLabelKey: "other"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(otherPort)}}},
	}, metav1.CreateOptions{})
	c.must(err)
	_, err = c.gateway.GatewayV1().HTTPRoutes(shop).Create(c.Context(), parse[gatewayv1.HTTPRoute](c, `
metadata: {name: other}
spec: {parentRefs: [{name: other}], hostnames: [web.example], rules: [{backendRefs: [{name: web, port: 80}]}]}
`), metav1.CreateOptions{})
	c.must(err)
}

// processes are those of Gateways, as the newest supervisor's children.
func (c *cluster) processes() map[string]int {
	c.Helper()
	out := map[string]int{}
	list, err := os.ReadDir("/proc")
	c.must(err)
	for _, f := range list {
		pid, err := strconv.Atoi(f.Name())
		if err != nil || !slices.Contains(fields("/proc/"+f.Name()+"/status", "\n"), "PPid:\t"+strconv.Itoa(c.process.Pid)) {
			continue
		}
		for _, variable := range fields("/proc/"+f.Name()+"/environ", "\x00") {
			if gateway, is := strings.CutPrefix(variable, onlyVariable+"="); is {
				out[gateway] = pid
			}
		}
	}
	return out
}

// killOrphans ends the processes of Gateways that have outlived who supervised them.
func (c *cluster) killOrphans() {
	for _, pid := range c.running() {
		_ = kill(pid) // it may have ended
	}
}

// running are all processes, supervisors and Gateways'.
func (c *cluster) running() []int {
	list, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []int
	for _, f := range list {
		pid, err := strconv.Atoi(f.Name())
		if err == nil && slices.Contains(fields("/proc/"+f.Name()+"/environ", "\x00"), gatewayVariable+"="+c.kubeconfig) {
			all = append(all, pid)
		}
	}
	return all
}

// TestNextOutlives: a process that has taken over goes on when the one before ends, whose
// context ends with it.
func TestNextOutlives(t *testing.T) {
	c := newCluster(t)
	c.fill()
	c.ready = []*pod{c.start()}
	c.writeSlices()
	c.startGateway(os.Args[0])
	first := c.serving()
	c.await("a gateway that is ready", isReady)
	c.must(first.Signal(syscall.SIGUSR2))
	next := c.serving()
	c.await("the end of the one before", func(context.Context) bool { return !slices.Contains(c.running(), first.Pid) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for range wait.Every(ctx, 10*time.Millisecond) {
		c.must(asked(plainPort))
	}
	if !slices.Contains(c.running(), next.Pid) {
		t.Error("the next process has ended, too")
	}
}

// TestStopWhileReplaced: a gateway that is told to end while the next process is on its
// way ends that, too, whenever it is.
func TestStopWhileReplaced(t *testing.T) {
	c := newCluster(t)
	c.fill()
	c.ready = []*pod{c.start()}
	c.writeSlices()
	for _, pause := range []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond} {
		c.startGateway(os.Args[0])
		supervisor := c.serving()
		c.await("a gateway that is ready", isReady)
		c.must(supervisor.Signal(syscall.SIGUSR2))
		time.Sleep(pause)                              // the signal comes at any moment of the upgrade
		if supervisor.Signal(syscall.SIGTERM) != nil { // it has been replaced, and is gone
			c.must(c.serving().Signal(syscall.SIGTERM))
		}
		c.await("the end of all processes", func(context.Context) bool { return len(c.running()) == 0 })
		c.must(os.Remove(c.kubeconfig + pidSuffix)) // the next one writes it
	}
}

func fields(file, separator string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil // the process has ended
	}
	return strings.Split(string(bytes.TrimSpace(text)), separator)
}

func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// line is a connection to a Gateway that is kept.
type line struct {
	net.Conn
	answers *bufio.Reader
}

func (c *cluster) dial(port int) *line {
	c.Helper()
	conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
	c.must(err)
	c.Cleanup(func() { _ = conn.Close() })
	return &line{conn, bufio.NewReader(conn)}
}

func (l *line) ask() error {
	if err := l.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(l, "GET / HTTP/1.1\r\nHost: web.example\r\n\r\n"); err != nil {
		return err
	}
	answer, err := http.ReadResponse(l.answers, nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("answer %s", answer.Status)
	}
	return nil
}

// asked asks once, at a new connection.
func asked(port int) error {
	conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return (&line{conn, bufio.NewReader(conn)}).ask()
}
