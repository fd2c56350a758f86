package apiserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// commonServer is the one of sharedServer.
var commonServer tidied

// tidied is a server, and what it had at first.
type tidied struct {
	*Server
	dir   string
	began map[string]string // what was stored once it had started, by key
	used  bool              // by a test that goes on
}

// sharedServer is a server for tests that change objects alone: it takes as long to start one as most of
// them take. What a test leaves behind is deleted before the next one has it. A test that changes
// the server itself, or that is parallel, starts its own.
func sharedServer(t *testing.T) *Server {
	t.Helper()
	if commonServer.Server == nil {
		if err := commonServer.start(); err != nil {
			t.Fatal(err)
		}
	}
	if commonServer.used {
		t.Fatal("another test has the server that tests share")
	}
	commonServer.used = true
	t.Cleanup(func() {
		commonServer.used = false
		if err := commonServer.tidy(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("tidy the server that tests share: %v", err)
		}
	})
	return commonServer.Server
}

func (s *tidied) start() (err error) {
	if s.dir, err = os.MkdirTemp("", "apiserver"); err != nil {
		return err
	}
	c := DefaultConfig()
	c.DataDir, c.Port = s.dir, 0
	if s.Server, err = Start(context.Background(), c); err != nil {
		return err
	}
	s.began, err = s.stored(context.Background())
	return err
}

func (s *tidied) close() error {
	if s.Server == nil {
		return nil
	}
	return errors.Join(s.Close(), os.RemoveAll(s.dir))
}

// stored is all that etcd has of objects.
func (s *tidied) stored(ctx context.Context) (map[string]string, error) {
	all, err := s.backend.Client.Client.Get(ctx, "/registry/", clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read what is stored: %w", err)
	}
	values := map[string]string{}
	for _, kv := range all.Kvs {
		values[string(kv.Key)] = string(kv.Value)
	}
	return values, nil
}

// tidy deletes what has come since the start, and writes again what has gone. Services go by the
// API, which gives their addresses and ports back; the others as they are stored, whatever
// finalizers they have.
func (s *tidied) tidy(ctx context.Context) error {
	api, err := kubernetes.NewForConfig(s.LoopbackConfig())
	if err != nil {
		return err
	}
	services, err := api.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, service := range services.Items {
		if key := "/registry/services/" + service.Namespace + "/" + service.Name; s.began[key] == "" {
			errs = append(errs, api.CoreV1().Services(service.Namespace).Delete(ctx, service.Name, metav1.DeleteOptions{}))
		}
	}
	now, err := s.stored(ctx)
	if err != nil {
		return err
	}
	for key := range now {
		if s.began[key] == "" {
			_, err := s.backend.Client.Client.Delete(ctx, key)
			errs = append(errs, err)
		}
	}
	for key, value := range s.began {
		if now[key] == "" && !strings.HasPrefix(key, "/registry/events/") {
			_, err := s.backend.Client.Client.Put(ctx, key, value)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
