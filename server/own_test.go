package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/test/wait"
)

// TestOwnServerStartsAgain: a server that ends by itself is started again, and
// the agent's client finds it.
func TestOwnServerStartsAgain(t *testing.T) {
	config := apiserver.DefaultConfig()
	config.DataDir, config.Port, config.ServiceCIDRs = t.TempDir(), 0, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	own := newOwn()
	own.pause = time.Millisecond
	servers := make(chan *apiserver.Server, 2)
	own.run = func(ctx context.Context, config Config, ready chan<- *apiserver.Server) error {
		server, err := apiserver.Start(ctx, config.API)
		if err != nil {
			return err
		}
		ready <- server
		servers <- server
		return errors.Join(server.Wait(), errors.New("disk full"))
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	var out bytes.Buffer
	ended := make(chan error, 1)
	go func() { ended <- own.keep(ctx, Config{API: config, Out: &out}) }()
	<-own.ready
	client, err := kubernetes.NewForConfig(own.config())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		server := <-servers
		for late := range wait.Tries(time.Minute) { // the client learns of it a moment later
			list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			if err == nil {
				if !slices.ContainsFunc(list.Items, func(n corev1.Namespace) bool { return n.Name == "default" }) {
					t.Errorf("namespaces: %v", list.Items)
				}
				break
			}
			if late || ctx.Err() != nil {
				t.Fatal(err)
			}
		}
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-ended; err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "The API server ended: disk full") {
		t.Errorf("it said %q", out.String())
	}
}

// TestOwnServerFailsAtOnce: what keeps the first start from succeeding ends it.
func TestOwnServerFailsAtOnce(t *testing.T) {
	own := newOwn()
	own.run = func(context.Context, Config, chan<- *apiserver.Server) error {
		return errors.New("port taken")
	}
	if err := own.keep(t.Context(), Config{Out: io.Discard}); err == nil || err.Error() != "port taken" {
		t.Errorf("it ended with %v", err)
	}
}
