//go:build manyservices

package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/test/wait"
)

const (
	manyServices  = 10_000
	mostExplained = 1 << 20 // bytes that one explanation may take from the API
)

// TestExplainManyServices: with 10,000 Services of five endpoints and 5,000 pods, explain takes
// what one Service takes: less than 1 MB from the API, and, where this machine is idle, less than
// 100 ms, which is logged.
func TestExplainManyServices(t *testing.T) {
	c := config("many")
	c.Mode, c.Nodes = "nftables", 1
	up(t, c)
	makeMany(t, c.Name)
	eventually(t, "all Services are in force", func() bool {
		list := agentlink.Find(t.Context(), filepath.Join(lab.Dir(c.Name), "*", agentlink.SocketName))
		return len(list) == 1 && list[0].Err == nil && list[0].Status.Services >= manyServices
	})
	counted := countedAPI(t, lab.Kubeconfig(c.Name))
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := client.CoreV1().Services("default").Get(t.Context(), "many-4711", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, question := range []string{"svc/many-4711", "many-4711.default.svc", s.Spec.ClusterIP + ":80", "svc/many-4711 --from 10.244.1.9"} {
		quickest := time.Hour
		for range 5 {
			counted.read.Store(0)
			began := time.Now()
			out, stderr, code := fairway(append([]string{"explain", "--kubeconfig", counted.kubeconfig}, strings.Fields(question)...)...)
			quickest = min(quickest, time.Since(began))
			if code != 0 || !strings.Contains(out, "FORWARDED to one of 5 endpoints") || strings.Contains(out, "follows from the API") {
				t.Fatalf("explain %s: exit code %d: %s%s", question, code, out, stderr)
			}
			if n := counted.read.Load(); n > mostExplained || n == 0 {
				t.Errorf("explain %s: %d bytes from the API", question, n)
			}
		}
		t.Logf("explain %s: %d bytes from the API, %s with the start of the process", question, counted.read.Load(), quickest.Round(time.Millisecond))
	}
	began := time.Now()
	out, stderr, code := fairway("doctor", "-A", "--kubeconfig", deadKubeconfig(t, c.Name))
	if code != 0 || !strings.Contains(out, "looked at by what agents have in force, 0 problems") {
		t.Errorf("doctor -A without an API: exit code %d: %s%s", code, out, stderr)
	}
	t.Logf("doctor -A without an API: %s", time.Since(began).Round(time.Millisecond))
	pageCosts(t, c.Name, "many-4711")
}

// makeMany makes Services with an EndpointSlice each, and Pods of a machine that there isn't.
func makeMany(t *testing.T, name string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", lab.Kubeconfig(name))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for part := range 32 {
		group.Go(func() {
			for i := part; i < manyServices; i += 32 {
				if err := makeOne(t, client, i); err != nil {
					t.Errorf("make Service %d: %v", i, err)
					return
				}
			}
		})
	}
	if group.Wait(); t.Failed() {
		t.FailNow()
	}
}

func makeOne(t *testing.T, client kubernetes.Interface, i int) error {
	name, port, number, proto := fmt.Sprintf("many-%d", i), "http", int32(8080), corev1.ProtocolTCP
	_, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: port, Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &port, Port: &number, Protocol: &proto}},
	}
	for n := range 5 {
		at := i*5 + n
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+at>>14, at>>7&127, 1+at&127)}})
	}
	if _, err := client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice, metav1.CreateOptions{}); err != nil || i%2 == 1 {
		return err
	}
	_, err = client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: "elsewhere", Containers: []corev1.Container{{Name: "c", Image: "hello"}}},
	}, metav1.CreateOptions{})
	return err
}

// countedLink is a way to an API that counts what it answers.
type countedLink struct {
	kubeconfig string
	read       atomic.Int64
}

// countedAPI makes one, with a kubeconfig beside the lab's.
func countedAPI(t *testing.T, kubeconfig string) *countedLink {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	c := &countedLink{kubeconfig: filepath.Join(filepath.Dir(kubeconfig), "counted")}
	for _, cluster := range config.Clusters {
		at, err := url.Parse(cluster.Server)
		if err != nil {
			t.Fatal(err)
		}
		cluster.Server, cluster.TLSServerName = "https://"+listener.Addr().String(), at.Hostname()
		go c.serve(listener, at.Host)
	}
	if err := clientcmd.WriteToFile(*config, c.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *countedLink) serve(listener net.Listener, to string) {
	for {
		near, err := listener.Accept()
		if err != nil {
			return // it is over
		}
		far, err := net.Dial("tcp", to)
		if err != nil {
			_ = near.Close()
			continue
		}
		go func() {
			_, _ = io.Copy(far, near) // until either end is closed
			_ = far.Close()
		}()
		go func() {
			_, _ = io.Copy(io.MultiWriter(near, c), far)
			_ = near.Close()
		}()
	}
}

// Write counts.
func (c *countedLink) Write(b []byte) (int, error) {
	c.read.Add(int64(len(b)))
	return len(b), nil
}

// pageTime is for how long a page is looked at.
const pageTime = 30 * time.Second

// pageCosts logs the CPU time that the agent, the API server and the page take in half a minute
// without a page, with its list of Services open, and with one Service open, of which the agent
// counts every two seconds.
func pageCosts(t *testing.T, name, service string) {
	t.Helper()
	took := func(what string, do func()) {
		before := cpuOf(t, name)
		do()
		line := ""
		for _, role := range []string{" agent ", " server ", " web "} {
			line += role + (cpuOf(t, name)[role] - before[role]).String()
		}
		t.Logf("%s, %s:%s", what, pageTime, line)
	}
	took("no page", func() { time.Sleep(pageTime) }) // what is measured
	at, err := url.Parse(web(t, lab.Kubeconfig(name))())
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	read := func(ctx context.Context, path string) int64 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := browser.Do(r)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return 0
		}
		defer answer.Body.Close() //nolint:errcheck // only read
		n, err := io.Copy(io.Discard, answer.Body)
		if answer.StatusCode != http.StatusOK || err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %s, %v", path, answer.Status, err)
		}
		return n
	}
	read(t.Context(), at.String())
	api := "http://" + at.Host + "/api/v1/"
	took("its first half minute", func() { time.Sleep(pageTime) }) // what is measured
	took("the list open", func() {
		ctx, stop := context.WithTimeout(t.Context(), pageTime)
		defer stop()
		read(ctx, api+"services?sort=worst")
		read(ctx, api+"events")
	})
	took("one Service open", func() {
		for range wait.Tries(pageTime) {
			read(t.Context(), api+"services/default/"+service+"/traffic")
		}
	})
}

// cpuOf is the CPU time that processes of a lab have taken, by their role.
func cpuOf(t *testing.T, name string) map[string]time.Duration {
	t.Helper()
	used := map[string]time.Duration{}
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		words, err := os.ReadFile(path)
		line := string(bytes.ReplaceAll(words, []byte{0}, []byte(" ")))
		if err != nil || !strings.Contains(line, lab.Dir(name)+"/") {
			continue // another's, or over
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		_, after, found := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		if err != nil || !found || len(fields) < 13 {
			continue
		}
		for _, role := range []string{" agent ", " server ", " web "} {
			if !strings.Contains(line, role) {
				continue
			}
			for _, ticks := range fields[11:13] { // utime and stime, of which there are 100 a second
				if n, err := strconv.Atoi(ticks); err == nil {
					used[role] += time.Duration(n) * 10 * time.Millisecond
				}
			}
		}
	}
	return used
}
