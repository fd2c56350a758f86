package customresources

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// The library's hook of this name ends the whole process if the server is
// stopped before the definitions are read, as one is that is interrupted while it
// starts: a post-start hook that returns an error is fatal
// (k8s.io/apiserver/pkg/server/hooks.go). This one, of the same name in /readyz,
// then just ends.
const syncedHook = "crd-informer-synced"

// syncedSignal is the library's name for the signal that its hook gives: until
// then, paths that aren't known may be those of custom resources.
const syncedSignal = "CRDInformerHasNotSynced"

// syncedInterval is how often is asked whether the definitions are read.
const syncedInterval = 5 * time.Millisecond

// disableLibraryHook must be called on the library's own configuration.
func disableLibraryHook(config *genericapiserver.RecommendedConfig) {
	config.DisabledPostStartHooks = sets.NewString(config.DisabledPostStartHooks.List()...).Insert(syncedHook)
}

// delegate is the library's server with our signal in place of its own.
type delegate struct {
	*genericapiserver.GenericAPIServer
	synced chan struct{}
}

func (d delegate) MuxAndDiscoveryCompleteSignals() map[string]<-chan struct{} {
	return map[string]<-chan struct{}{syncedSignal: d.synced}
}

// awaitSynced gives the signal when the definitions are read. It is a post-start
// hook, and is called once.
func (s *Server) awaitSynced(hook genericapiserver.PostStartHookContext) error {
	read := s.definitions().Informer().HasSynced
	err := wait.PollUntilContextCancel(hook, syncedInterval, true, func(context.Context) (bool, error) {
		return read(), nil
	})
	if err == nil {
		close(s.synced)
	}
	return nil
}
