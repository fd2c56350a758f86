package apiserver

import (
	"context"
	"errors"
	"net/http"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/fairway-net/fairway/apiserver/storage"
)

// etcdTimeout bounds how long a health check waits for etcd.
const etcdTimeout = 2 * time.Second

// diskCheck is the name of a check of /readyz.
const diskCheck = "disk"

// checkStorage makes /healthz, /livez and /readyz know etcd: without it nothing
// can be read anew or written.
func checkStorage(config *genericapiserver.Config, backend *storage.Backend, inCluster bool) {
	config.AddHealthChecks(healthz.NamedCheck("etcd", func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), etcdTimeout)
		defer cancel()
		return backend.Healthy(ctx)
	}))
	if !inCluster {
		return
	}
	// Clients find a server with room. One that is alone goes on being read.
	config.ReadyzChecks = append(config.ReadyzChecks, healthz.NamedCheck(diskCheck, func(*http.Request) error {
		if backend.Full() {
			return errors.New("disk full: objects can be read and deleted only")
		}
		return nil
	}))
}
