//go:build page

package lab_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
)

// TestPageOfLab: what a browser makes of `fairway web` where agents are elsewhere: they are
// asked by way of the API server. The steps are in web/test/lab.mjs.
func TestPageOfLab(t *testing.T) {
	pictures := os.Getenv("FAIRWAY_PAGE")
	if pictures == "" {
		t.Fatal("FAIRWAY_PAGE names no folder for pictures: `make check NAME=page`")
	}
	c := config("page")
	c.Mode = "nftables"
	up(t, c)
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), hello(2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	addresses := map[string]string{}
	for name, app := range map[string]string{"web": "hello", "none": "nobody"} {
		s, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": app}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		addresses[name] = net.JoinHostPort(s.Spec.ClusterIP, "80")
	}
	node1, err := netns.Open(topology.HostNamespace(c.Name, "node1"))
	if err != nil {
		t.Fatal(err)
	}
	defer node1.Close() //nolint:errcheck // of a test
	mux := http.NewServeMux()
	mux.HandleFunc("POST /connect/{service}", func(_ http.ResponseWriter, r *http.Request) {
		for range 5 {
			_ = node1.Do(func() error { return connect(addresses[r.PathValue("service")]) }) // the page says what became of it
		}
	})
	for path, signal := range map[string]syscall.Signal{"freeze": syscall.SIGSTOP, "thaw": syscall.SIGCONT} {
		mux.HandleFunc("POST /"+path+"/{node}", func(w http.ResponseWriter, r *http.Request) {
			if err := signalAgent(r.Context(), c.Name, r.PathValue("node"), signal); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	urls := web(t, elsewhere(t, c.Name))
	mux.HandleFunc("GET /url/lab", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, urls()) })
	control := httptest.NewServer(mux)
	t.Cleanup(control.Close)
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	steps := exec.CommandContext(ctx, "node", filepath.Join("..", "web", "test", "lab.mjs"))
	steps.Env = append(os.Environ(), "PAGE_CONTROL="+control.URL, "PAGE_PICTURES="+pictures)
	out, err := steps.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("node lab.mjs: %v", err)
	}
}

// frozen are the agents that were stopped, by their sockets.
var frozen sync.Map

// connect makes a connection from the network namespace of the calling thread.
func connect(to string) error {
	conn, err := net.DialTimeout("tcp", to, time.Second)
	if err == nil {
		err = conn.Close()
	}
	return err
}

// signalAgent sends a signal to the agent of a node.
func signalAgent(ctx context.Context, name, node string, signal syscall.Signal) error {
	path := filepath.Join(lab.Dir(name), node, agentlink.SocketName)
	if signal == syscall.SIGSTOP {
		status, err := agentlink.New(path).Status(ctx)
		if err != nil {
			return err
		}
		frozen.Store(path, status.PID)
	}
	pid, there := frozen.Load(path)
	if !there {
		return fmt.Errorf("the agent of %s isn't frozen", node)
	}
	return syscall.Kill(pid.(int), signal)
}

// elsewhere is the lab's kubeconfig at a place that isn't the lab's: agents' sockets are
// found beside that one.
func elsewhere(t *testing.T, name string) string {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text, err := os.ReadFile(lab.Kubeconfig(name))
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
