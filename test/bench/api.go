package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/fairway-net/fairway/kube"
)

// api is the embedded API server, as a process of its own on the underlay.
type api struct {
	process *process // nil if it is somebody else's
	client  kubernetes.Interface
	config  *rest.Config        // for clients in this process
	gateway versioned.Interface // nil where nobody asks for it
	// kubeconfig is for processes on the underlay and its nodes.
	kubeconfig string
	world      world
	progress   io.Writer    // where it is said how far filling is; nil for nowhere
	away       func() error // leaves a server that is somebody else's as it was
}

// serviceCIDR is where cluster IPs come from.
const serviceCIDR = "10.96.0.0/12"

// startTimeout is how long a process of ours may take to come up, on an
// emulated machine, too.
const startTimeout = 5 * time.Minute

func startAPI(ctx context.Context, s *site, fairway, dir string) (*api, error) {
	host := s.lab.Underlay()
	a := &api{kubeconfig: filepath.Join(dir, "admin.kubeconfig")}
	var err error
	a.process, err = start(host, "server", filepath.Dir(dir), exec.Command(fairway,
		"server", "--data-dir", dir, "--bind-address", host.IPv4().String(), "--service-cidr", serviceCIDR))
	if err != nil {
		return nil, err
	}
	err = poll(ctx, startTimeout, 20*time.Millisecond, func() error {
		if err := a.process.alive(); err != nil {
			return permanent{err}
		}
		a.config, err = kube.Config(a.kubeconfig)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait for the API server: %w", err), a.process.stop())
	}
	a.config.QPS = -1
	a.config.Dial = s.dial
	a.client, err = kube.Client(a.config)
	return a, err
}

func (a *api) stop() error {
	if a.away != nil {
		return a.away()
	}
	return a.process.stop()
}
