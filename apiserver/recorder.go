package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// recordEvents lets the server write Events about what is stored in it.
func (s *Server) recordEvents(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.LoopbackConfig())
	if err != nil {
		return fmt.Errorf("create loopback client: %w", err)
	}
	s.events = record.NewBroadcaster(record.WithContext(ctx))
	s.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return nil
}

func (s *Server) recorder() record.EventRecorder {
	return s.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "fairway-apiserver"})
}
