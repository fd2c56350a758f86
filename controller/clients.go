package controller

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/kube"
)

// clients are the ways to the API that the controllers need.
type clients struct {
	typed    kubernetes.Interface
	metadata metadata.Interface
	metallb  *kube.MetalLB
	config   *rest.Config // of controllers with clients of their own
}

func newClients(config *rest.Config) (clients, error) {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	// The server has its own limits; client-go's default of five calls a
	// second would take half an hour for 10,000 Services.
	config.QPS = -1
	// Endpoints are deprecated, and every answer with one says so.
	config.WarningHandler = rest.NoWarnings{}
	if config.UserAgent == "" {
		config.UserAgent = "fairway-controller"
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("make API client: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("make metadata client: %w", err)
	}
	metallb, err := kube.NewMetalLB(config)
	if err != nil {
		return clients{}, err
	}
	return clients{typed: typed, metadata: objects, metallb: metallb, config: config}, nil
}
