//go:build !race

// The API server under the race detector takes longer than the load: the engine
// itself is tested with it.

package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/fairway-net/fairway/ingress/engine/native"
	"github.com/fairway-net/fairway/internal/netns"
)

const (
	insideVariable  = "FAIRWAY_TEST_INSIDE"  // set in the tests' own network namespace
	gatewayVariable = "FAIRWAY_TEST_GATEWAY" // a kubeconfig: this process is a gateway
	engineVariable  = "FAIRWAY_TEST_ENGINE"  // of gateways; native if it isn't set
	onlyVariable    = "FAIRWAY_TEST_ONLY"    // the one Gateway that it serves
	oneVariable     = "FAIRWAY_TEST_ONE"     // it serves all Gateways itself
	pidSuffix       = ".pid"                 // of the file beside it with the number of the latest one
)

// TestMain runs the tests in a network namespace of their own. A process of the
// same program may also be a gateway.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(gatewayVariable) != "":
		os.Exit(gatewayMain(os.Getenv(gatewayVariable)))
	case os.Getenv(insideVariable) != "":
		klog.LogToStderr(false)
		klog.SetOutput(io.Discard) // the API server's
		os.Exit(m.Run())
	}
	// Inside, there is no network from which to get what TestACME builds.
	download := exec.Command("go", "mod", "download")
	download.Dir = filepath.Join("..", "..", "test", "pebble")
	if out, err := download.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "download pebble: %v\n%s", err, out) // which may be there already
	}
	ns, err := netns.Anonymous()
	if err == nil {
		err = prepare(ns)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	inside := exec.Command(os.Args[0], os.Args[1:]...)
	inside.Env = append(os.Environ(), insideVariable+"=1")
	inside.Stdin, inside.Stdout, inside.Stderr = os.Stdin, os.Stdout, os.Stderr
	inside.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the signal comes when the thread ends
	if err := ns.Start(inside); err == nil {
		_ = inside.Wait() // its status says it all
	} else {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(inside.ProcessState.ExitCode())
}

// gatewayMain is a process `fairway gateway`.
func gatewayMain(kubeconfig string) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	api, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	config := Config{
		API: api, Node: "node", Kind: os.Getenv(engineVariable), Listen: health, Handover: "@nothing-lost", Delay: time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)).With("pid", os.Getpid()),
	}
	config.Engine.Grace, config.Engine.Drain = 30*time.Second, 10*time.Minute
	config.Engine.Access = func(a *native.Access) {
		if a.Status >= 500 {
			config.Logger.Error("request failed", "status", a.Status, "host", a.Host, "endpoint", a.Endpoint, "reason", a.Reason)
		}
	}
	if only := os.Getenv(onlyVariable); only != "" {
		signal.Ignore(unix.SIGUSR2)
		if ctx, err = config.Member(ctx, only); err == nil {
			err = Run(ctx, config)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	if os.Getenv(oneVariable) == "" {
		config.Command = func(name types.NamespacedName) *exec.Cmd {
			c := exec.Command("/proc/self/exe", os.Args[1:]...)
			c.Env, c.Stdout, c.Stderr = append(os.Environ(), onlyVariable+"="+name.String()), os.Stdout, os.Stderr
			return c
		}
	}
	next := kubeconfig + ".next"
	err = os.WriteFile(next, fmt.Appendln(nil, os.Getpid()), 0o600)
	if err == nil {
		err = os.Rename(next, kubeconfig+pidSuffix)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	upgrade := make(chan os.Signal, 1)
	signal.Notify(upgrade, unix.SIGUSR2)
	config.Upgrade = upgrade
	if err := Run(ctx, config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
