// Package notices writes Events about what of a Service is not done, and about this node.
//
// notices.go queues and writes them, pace.go says how many and by which node.
package notices

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Writer writes notices as Events, once each.
type Writer struct {
	client kubernetes.Interface
	node   string
	log    *slog.Logger
	queue  chan Notice

	// Of the goroutine that writes:
	nodes   int // of the cluster; 0 if that isn't known
	counted time.Time
}

// Notice is an Event to be, about a Service or, without a name, about this node.
type Notice struct {
	Service         types.NamespacedName
	Reason, Message string
	Kind            string // corev1.EventTypeWarning if ""
	// Local says that it is so on this node; otherwise all nodes find the same.
	Local bool
}

// New makes a writer for a node.
func New(client kubernetes.Interface, node string, log *slog.Logger) *Writer {
	return &Writer{client: client, node: node, log: log, queue: make(chan Notice, 256)}
}

// Post queues a notice whose subject was logged. Where too many wait it is dropped, since
// telling must never hold up forwarding.
func (e *Writer) Post(n Notice) {
	select {
	case e.queue <- n:
	default:
	}
}

// Report logs a notice and queues it.
func (e *Writer) Report(n Notice) {
	e.log.Warn("a Service's setting is ignored", "service", n.Service.String(), "reason", n.Reason, "message", n.Message)
	e.Post(n)
}

// Drain takes back what is queued and not yet looked at, instead of writing it.
func (e *Writer) Drain() (list []Notice) {
	for {
		select {
		case n := <-e.queue:
			list = append(list, n)
		default:
			return list
		}
	}
}

// ReportNode queues a notice about this node. It and its like are [speaker.Events].
func (e *Writer) ReportNode(reason, message string) { e.Post(Notice{Reason: reason, Message: message}) }

// ReportService logs and queues a notice about a fault on this node.
func (e *Writer) ReportService(service types.NamespacedName, reason, message string) {
	e.Report(Notice{Service: service, Reason: reason, Message: message})
}

// ReportNormal queues a notice about what is no fault.
func (e *Writer) ReportNormal(service types.NamespacedName, reason, message string) {
	e.Post(Notice{Service: service, Reason: reason, Message: message, Kind: corev1.EventTypeNormal, Local: true})
}

// write makes the Event. kubectl describe finds Events by the object's uid, so
// the Service is looked up: by a list, which is what the role of a proxy allows.
// The Event's name follows from what it says, so that of all nodes that find the
// same only the first is heard.
func (e *Writer) write(ctx context.Context, n Notice) error {
	list, err := e.client.CoreV1().Services(n.Service.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, n.Service.Name).String(),
	})
	if err != nil {
		return fmt.Errorf("look up the Service: %w", err)
	}
	for _, service := range list.Items {
		if service.Name != n.Service.Name {
			continue
		}
		_, err := e.client.CoreV1().Events(service.Namespace).Create(ctx, e.event(&service, n), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("write Event: %w", err)
		}
	}
	return nil
}

func (e *Writer) event(service *corev1.Service, n Notice) *corev1.Event {
	hash := fnv.New64a()
	fmt.Fprint(hash, service.UID, n.Reason, n.Message)
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: fmt.Sprintf("%s.%x", service.Name, hash.Sum64())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Service", Namespace: service.Namespace, Name: service.Name,
			UID: service.UID, ResourceVersion: service.ResourceVersion,
		},
		Reason: n.Reason, Message: n.Message, Type: cmp.Or(n.Kind, corev1.EventTypeWarning), Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: "fairway", Host: e.node}, ReportingController: "fairway", ReportingInstance: e.node,
	}
}

// writeNode makes an Event about this node. It is found by the node's name, which
// is the uid that kubelet and kube-proxy give in such Events.
func (e *Writer) writeNode(ctx context.Context, n Notice) error {
	event := e.event(&corev1.Service{}, n)
	event.Namespace, event.Name = metav1.NamespaceDefault, fmt.Sprintf("%s.%x", e.node, event.FirstTimestamp.UnixNano())
	event.InvolvedObject = corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.node, UID: types.UID(e.node)}
	if _, err := e.client.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("write Event: %w", err)
	}
	return nil
}
