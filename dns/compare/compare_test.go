package compare

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/coredns/caddy"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	// CoreDNS as its users have it, as far as the comparison goes.
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/metrics"

	"github.com/fairway-net/fairway/cmd"
	"github.com/fairway-net/fairway/kube"
)

// role in the environment has this test's binary be something else: fairway,
// or CoreDNS with the Corefile that is its only argument.
const role = "FAIRWAY_COMPARE_ROLE"

const services = 10_000

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "fairway":
		os.Exit(cmd.Main())
	case "coredns":
		if err := coredns(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

func coredns(corefile string) error {
	text, err := os.ReadFile(corefile)
	if err != nil {
		return err
	}
	instance, err := caddy.Start(caddy.CaddyfileInput{Contents: text, Filepath: corefile, ServerTypeName: "dns"})
	if err != nil {
		return err
	}
	instance.Wait()
	return nil
}

// BenchmarkServers asks each server for the addresses of random Services, as
// fast as it answers. What counts is queries/cpu-s: those answered for each
// second of processor time of the server's process, kernel included. The load
// comes from this process, which isn't counted.
func BenchmarkServers(b *testing.B) {
	dir := b.TempDir()
	kubeconfig := startAPI(b, dir)
	for _, metrics := range []bool{false, true} {
		for _, name := range []string{"coredns", "fairway"} {
			for _, mix := range mixes() {
				b.Run(fmt.Sprintf("%s/%s/metrics=%v", mix.name, name, metrics), func(b *testing.B) {
					at := netip.MustParseAddrPort("127.0.0.1:10553")
					var server *exec.Cmd
					if name == "coredns" {
						server = startCoreDNS(b, dir, kubeconfig, at, metrics)
					} else {
						server = startFairway(b, dir, kubeconfig, at, metrics)
					}
					measure(b, at, server.Process.Pid, mix)
				})
			}
		}
	}
}

// startAPI starts an API server with the Services.
func startAPI(b *testing.B, dir string) (kubeconfig string) {
	data := filepath.Join(dir, "server")
	start(b, dir, "fairway", "server", "--data-dir", data, "--bind-address", "127.0.0.1", "--secure-port", "0")
	kubeconfig = filepath.Join(data, "admin.kubeconfig")
	eventually(b, func() error { _, err := kube.Config(kubeconfig); return err })
	config, err := kube.Config(kubeconfig)
	if err != nil {
		b.Fatal(err)
	}
	config.QPS = -1
	client, err := kube.Client(config)
	if err != nil {
		b.Fatal(err)
	}
	eventually(b, func() error {
		_, err := client.CoreV1().Namespaces().Get(b.Context(), "default", metav1.GetOptions{})
		return err
	})
	group, ctx := errgroup.WithContext(context.Background())
	group.SetLimit(16)
	for i := range services {
		group.Go(func() error {
			_, err := client.CoreV1().Services("default").Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: serviceName(i)},
				Spec: corev1.ServiceSpec{
					Selector: map[string]string{"app": serviceName(i)},
					Ports:    []corev1.ServicePort{{Name: "http", Port: 80}},
				},
			}, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return kubeconfig
}

func serviceName(i int) string { return fmt.Sprintf("service-%d", i) }

func startCoreDNS(b *testing.B, dir, kubeconfig string, at netip.AddrPort, metrics bool) *exec.Cmd {
	corefile := fmt.Sprintf(`.:%d {
	bind %s
	errors
	%s
	kubernetes cluster.local in-addr.arpa ip6.arpa {
		kubeconfig %s
		pods insecure
	}
}
`, at.Port(), at.Addr(), map[bool]string{true: "prometheus 127.0.0.1:19153"}[metrics], kubeconfig)
	path := filepath.Join(dir, "Corefile")
	if err := os.WriteFile(path, []byte(corefile), 0o644); err != nil {
		b.Fatal(err)
	}
	return start(b, dir, "coredns", path)
}

func startFairway(b *testing.B, dir, kubeconfig string, at netip.AddrPort, metrics bool) *exec.Cmd {
	return start(b, dir, "fairway", "dns", "--kubeconfig", kubeconfig, "--listen", at.String(), "--resolv-conf", "",
		"--dns-metrics-bind-address", map[bool]string{true: "127.0.0.1:19153"}[metrics])
}

// start runs this binary in another role until the benchmark ends.
func start(b *testing.B, dir, as string, args ...string) *exec.Cmd {
	log, err := os.Create(filepath.Join(dir, as+".log"))
	if err != nil {
		b.Fatal(err)
	}
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), role+"="+as)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			b.Error(err)
		}
		err := c.Wait()
		if as == "fairway" && err != nil {
			text, _ := os.ReadFile(log.Name())
			b.Errorf("%v: %v\n%s", args, err, text)
		}
		if err := log.Close(); err != nil {
			b.Error(err)
		}
	})
	return c
}

func eventually(b *testing.B, try func() error) {
	b.Helper()
	for late := range wait.Tries(time.Minute) {
		err := try()
		if err == nil {
			return
		}
		if late {
			b.Fatal(err)
		}
	}
}

// cpuTime is the processor time that a process has used (proc(5), fields 14
// and 15, of a hundredth of a second each).
func cpuTime(b *testing.B, pid int) time.Duration {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	var ticks time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}

// resident is how much memory a process has, in megabytes.
func resident(b *testing.B, pid int) float64 {
	statm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	if err != nil {
		b.Fatal(err)
	}
	return float64(pages*os.Getpagesize()) / 1e6
}
