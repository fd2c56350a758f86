// Package kube is the agent's way to a Kubernetes API, whoever serves it:
// client configuration, and watches that hand each object on without keeping it.
package kube

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
)

// Config reads the client configuration from a kubeconfig file or, if path is
// empty, from the pod that this process runs in. Objects travel as protobuf.
func Config(path string) (*rest.Config, error) {
	cfg, err := load(path)
	if err != nil {
		return nil, err
	}
	return Tune(cfg), nil
}

func load(path string) (*rest.Config, error) {
	if path == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: not given, and this is not a pod of a cluster: give the kubeconfig of the node or of an administrator, such as /etc/kubernetes/kubelet.conf or /var/lib/fairway/admin.kubeconfig (%w)", err)
		}
		return cfg, nil
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	return cfg, nil
}

// Tune returns a copy of cfg that speaks protobuf and whose requests are not
// held back on this side: an agent makes few, and each of them is wanted now. A
// token that is refused is read again from its file with the next request:
// client-go by itself would go on with it for a minute.
func Tune(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	if file := cfg.BearerTokenFile; file != "" {
		cfg.BearerToken, cfg.BearerTokenFile = "", ""
		cfg.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(file)))
	}
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.UserAgent = "fairway"
	if cfg.QPS == 0 {
		cfg.QPS, cfg.Burst = 50, 100
	}
	return cfg
}
