package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairway-net/fairway/test/vm"
)

// server is the program's API server, on this machine's loopback.
type server struct {
	dir        string
	kubeconfig string // for programs in the virtual machine
	cmd        *exec.Cmd
	ended      chan error
}

// serverTimeout is how long it may take to come up.
const serverTimeout = 2 * time.Minute

func startServer(program string) (*server, error) {
	dir, err := os.MkdirTemp("", "fairway-invm-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig"), ended: make(chan error, 1)}
	s.cmd = exec.Command(program, "server", "--data-dir", filepath.Join(dir, "data"), "--bind-address", "127.0.0.1", "--service-cidr", "10.96.0.0/12")
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the API server: %w", err), os.RemoveAll(dir))
	}
	go func() { s.ended <- s.cmd.Wait() }()
	if err := s.await(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the API server: %w", err), s.stop())
	}
	return s, nil
}

// await waits for the server's own kubeconfig, and makes of it one for the
// virtual machine.
func (s *server) await() error {
	for deadline := time.Now().Add(serverTimeout); ; time.Sleep(50 * time.Millisecond) {
		config, err := clientcmd.LoadFromFile(filepath.Join(s.dir, "data", "admin.kubeconfig"))
		if err == nil {
			return s.translate(config)
		}
		select {
		case ended := <-s.ended:
			s.ended <- ended
			return errors.Join(errors.New("it has ended"), ended)
		default:
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

func (s *server) translate(config *clientcmdapi.Config) error {
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		at, err := url.Parse(cluster.Server)
		if err != nil {
			return err
		}
		cluster.TLSServerName = at.Hostname()
		cluster.Server = "https://" + net.JoinHostPort(vm.HostAddress, at.Port())
	}
	return clientcmd.WriteToFile(*config, s.kubeconfig)
}

func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return errors.Join(<-s.ended, os.RemoveAll(s.dir))
}
