package apiserver

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestKilled kills a server with SIGKILL in the middle of writes, again and
// again: every write that it acknowledged is there afterwards, with its
// address, and no address without a Service.
func TestKilled(t *testing.T) {
	config := testConfig(t)
	acknowledged := map[string]string{}
	var mu sync.Mutex
	for round := range 3 {
		process := serverProcess(t, config.DataDir)
		admin, err := clientcmd.BuildConfigFromFlags("", AdminKubeconfig(config.DataDir))
		if err != nil {
			t.Fatal(err)
		}
		admin.QPS = -1
		c, err := kubernetes.NewForConfig(admin)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		enough := make(chan struct{}, 1000)
		var writers sync.WaitGroup
		for w := range 8 {
			writers.Go(func() {
				for i := 0; ; i++ {
					name := fmt.Sprintf("s-%d-%d-%d", round, w, i)
					svc, err := c.CoreV1().Services("default").Create(ctx, nodePortService(name), metav1.CreateOptions{})
					if err != nil {
						return
					}
					mu.Lock()
					acknowledged[name] = svc.Spec.ClusterIP
					mu.Unlock()
					enough <- struct{}{}
				}
			})
		}
		for range 100 {
			select {
			case <-enough:
			case <-ctx.Done():
				t.Fatal("the server does not acknowledge 100 writes")
			}
		}
		if err := process.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		// It can only say that it was killed.
		if err := process.Wait(); err == nil {
			t.Fatal("the killed server ended well")
		}
		writers.Wait()
		cancel()
	}
	s := start(t, config)
	list, err := client(t, s).CoreV1().Services("default").List(within(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored, claims := map[string]string{}, usage(t, s)
	owners := map[string]bool{}
	for _, svc := range list.Items {
		stored[svc.Name] = svc.Spec.ClusterIP
		if owner := claims["clusterip/"+svc.Spec.ClusterIP]; owner != "default/"+svc.Name {
			t.Errorf("%s of %s is claimed by %q", svc.Spec.ClusterIP, svc.Name, owner)
		}
		owners["default/"+svc.Name] = true
	}
	for name, ip := range acknowledged {
		if stored[name] != ip {
			t.Errorf("acknowledged Service %s with %s is stored with %q", name, ip, stored[name])
		}
	}
	for claim, owner := range claims {
		if !owners[owner] {
			t.Errorf("%s is claimed by %s, which doesn't exist", claim, owner)
		}
	}
}

// externalEtcd starts an etcd with a listener, as an existing cluster has it.
func externalEtcd(t *testing.T) string {
	t.Helper()
	config := embed.NewConfig()
	config.Dir = t.TempDir() + "/data"
	config.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ListenPeerUrls = nil
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-within(t).Done():
		t.Fatal("etcd is not ready")
	}
	return "http://" + server.Clients[0].Addr().String()
}

// TestTwoServersOneEtcd: two servers on one etcd see each other's objects and
// never give the same number away twice.
func TestTwoServersOneEtcd(t *testing.T) {
	etcd := externalEtcd(t)
	var servers []*Server
	for range 2 {
		config := smallConfig(t)
		config.EtcdServers = []string{etcd}
		servers = append(servers, start(t, config))
		if _, err := os.Stat(config.DataDir + "/etcd"); !os.IsNotExist(err) {
			t.Errorf("a server with an existing etcd made its own: %v", err)
		}
	}
	addresses := func() int {
		e, err := client(t, servers[0]).CoreV1().Endpoints("default").Get(within(t), "kubernetes", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		slices, err := client(t, servers[0]).DiscoveryV1().EndpointSlices("default").List(within(t), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
		if err != nil {
			t.Fatal(err)
		}
		if len(slices.Items) != len(e.Subsets) {
			return 0
		}
		return len(e.Subsets)
	}
	eventually(t, "that the API's endpoints are both servers", func() bool { return addresses() == 2 })

	// Four node ports, three writers on each server: every write must either
	// get a number of its own or learn that there is none.
	var writers sync.WaitGroup
	created := make(chan *corev1.Service, 100)
	for n, s := range servers {
		for w := range 3 {
			services := client(t, s).CoreV1().Services("default")
			writers.Go(func() {
				svc, err := services.Create(t.Context(), nodePortService(fmt.Sprintf("s-%d-%d", n, w)), metav1.CreateOptions{})
				switch {
				case err == nil:
					created <- svc
				case !apierrors.IsInvalid(err):
					t.Error(err)
				}
			})
		}
	}
	writers.Wait()
	close(created)
	ips, ports := map[string]bool{}, map[int32]bool{}
	for svc := range created {
		ips[svc.Spec.ClusterIP], ports[svc.Spec.Ports[0].NodePort] = true, true
	}
	if len(ips) != 4 || len(ports) != 4 {
		t.Errorf("%d addresses and %d node ports given to Services, want 4 of each", len(ips), len(ports))
	}
	for _, s := range servers {
		if n := len(usage(t, s)); n != 1+2*4 {
			t.Errorf("%d claims, want 9", n)
		}
	}
	// What one frees, the other can give.
	if err := client(t, servers[0]).CoreV1().RESTClient().Delete().Namespace("default").Resource("services").
		Param("fieldSelector", "spec.type=NodePort").Do(within(t)).Error(); err != nil {
		t.Fatal(err)
	}
	usage(t, servers[1])
	if _, err := client(t, servers[1]).CoreV1().Services("default").Create(within(t), nodePortService("again"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	// One that goes is an endpoint no more.
	if err := servers[1].Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "that the API's endpoint is the server left", func() bool { return addresses() == 1 })
}
