package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairway-net/fairway/kube"
)

// useAPI measures with an API server that is there already, and has no Services
// but its own and cluster DNS'. The node, which has no way to it, reaches it by a relay in this
// process.
func useAPI(ctx context.Context, s *site, kubeconfig, dir string) (_ *api, err error) {
	a := &api{kubeconfig: filepath.Join(dir, "external.kubeconfig")}
	if a.config, err = kube.Config(kubeconfig); err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	a.config.QPS = -1
	if a.client, err = kube.Client(a.config); err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	var list *corev1.ServiceList
	err = poll(ctx, startTimeout, 100*time.Millisecond, func() (err error) {
		list, err = a.client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 3})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: list Services: %w", err)
	}
	for _, svc := range list.Items {
		if own := svc.Namespace + "/" + svc.Name; own != "default/kubernetes" && own != "kube-system/kube-dns" {
			return nil, fmt.Errorf("--kubeconfig: the API has Service %s: use one without any but its own", own)
		}
	}
	server, err := url.Parse(a.config.Host)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: server: %w", err)
	}
	var listener net.Listener
	err = s.lab.Underlay().Do(func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(s.lab.Underlay().IPv4().String(), "0"))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("relay the API: %w", err)
	}
	go relayAll(listener, server.Host)
	// Cleaned away with a context of its own: this one may have ended.
	a.away = func() error { return errors.Join(a.emptyAPI(context.Background()), listener.Close()) }
	return a, a.writeKubeconfig(kubeconfig, listener.Addr().String(), server.Hostname())
}

// writeKubeconfig writes one with the relay's address in the place of the
// server's, whose certificate has its own name.
func (a *api) writeKubeconfig(from, relay, name string) error {
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + relay
		if cluster.TLSServerName == "" {
			cluster.TLSServerName = name
		}
	}
	if err := clientcmd.WriteToFile(*config, a.kubeconfig); err != nil {
		return fmt.Errorf("write kubeconfig for the node: %w", err)
	}
	return nil
}

// relayAll copies between those who connect and a server.
func relayAll(listener net.Listener, server string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // closed at the end
		}
		go func() {
			defer client.Close() //nolint:errcheck // both ends notice for themselves
			there, err := net.Dial("tcp", server)
			if err != nil {
				return
			}
			defer there.Close() //nolint:errcheck
			go func() {
				_, _ = io.Copy(there, client) // whoever ends, the other is told
				_ = there.Close()
			}()
			_, _ = io.Copy(client, there)
		}()
	}
}

// emptyAPI deletes what was made.
func (a *api) emptyAPI(ctx context.Context) error {
	all := append(append([]*service{}, a.world.services...), a.world.probes...)
	return each(len(all), writers, func(i int) error { return a.deleteService(ctx, all[i]) })
}
