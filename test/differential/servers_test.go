//go:build differential

package differential

import (
	"context"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/lab/controlplane"
	"github.com/fairway-net/fairway/test/wait"
)

// kubernetesEnv is a directory of Kubernetes' own programs (see hack/kubernetes/build).
const kubernetesEnv = "FAIRWAY_KUBERNETES"

// withoutPlugins are those of kube-apiserver's admission that write into Pods and Nodes what a scheduler and a kubelet
// read. There is none of either here, and the server says of LimitRanges that they limit nothing.
var withoutPlugins = []string{"DefaultTolerationSeconds", "LimitRanger", "Priority", "ServiceAccount", "TaintNodesByCondition"}

// startKubernetes starts etcd and kube-apiserver in this network namespace.
func startKubernetes(t *testing.T) *rest.Config {
	t.Helper()
	loopback := netip.MustParseAddr("127.0.0.1")
	options := controlplane.Options{
		Binaries: os.Getenv(kubernetesEnv), Dir: t.TempDir(),
		Addresses: []netip.Addr{loopback}, ServiceCIDRs: apiserver.DefaultConfig().ServiceCIDRs,
	}
	if err := options.Check(); err != nil {
		t.Fatalf("%s: %v", kubernetesEnv, err)
	}
	if err := options.Prepare(); err != nil {
		t.Fatal(err)
	}
	for _, c := range options.Commands()[:2] { // without the controllers
		log, err := os.Create(filepath.Join(options.Dir, c.Name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		command := exec.Command(c.Path, c.Args...)
		if c.Name == "kube-apiserver" {
			command.Args = append(command.Args, "--disable-admission-plugins="+strings.Join(withoutPlugins, ","))
		}
		command.Stdout, command.Stderr = log, log
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = command.Process.Kill() // it may have ended
			_ = command.Wait()         // it says that it was killed
			if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
				t.Logf("%s: %s", c.Name, text[max(0, len(text)-1000):])
			}
		})
	}
	config, err := clientcmd.BuildConfigFromFlags("", options.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	return ready(t, config)
}

func startFairway(t *testing.T) *rest.Config {
	t.Helper()
	config := apiserver.DefaultConfig()
	config.DataDir, config.Port = t.TempDir(), 0
	server, err := apiserver.Start(context.WithoutCancel(t.Context()), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	admin, err := clientcmd.BuildConfigFromFlags("", server.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	return ready(t, admin)
}

func ready(t *testing.T, config *rest.Config) *rest.Config {
	t.Helper()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, 2*time.Minute, config.Host+" is ready", func() bool {
		var code int
		client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).StatusCode(&code)
		return code == http.StatusOK
	})
	return config
}
