package agent

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// events tells the authors of Services, once each, what of them is not done.
type events struct {
	client   kubernetes.Interface
	node     string
	log      *slog.Logger
	queue    chan notice
	reported *model.Table // of which it was reported what the plane does not support

	// Of the goroutine that writes:
	nodes   int // of the cluster; 0 if that isn't known
	counted time.Time
}

// notice is an Event to be, about a Service or, without a name, about this node.
type notice struct {
	service         types.NamespacedName
	reason, message string
	kind            string // corev1.EventTypeWarning if ""
	// local says that it is so on this node; otherwise all nodes find the same.
	local bool
}

// ReportNode queues a notice about this node. It and its like are [speaker.Events].
func (e *events) ReportNode(reason, message string) {
	select {
	case e.queue <- notice{reason: reason, message: message}:
	default: // what calls this has logged it
	}
}

// ReportService queues a notice about a fault on this node.
func (e *events) ReportService(service types.NamespacedName, reason, message string) {
	e.report(notice{service: service, reason: reason, message: message})
}

// ReportNormal queues a notice about what is no fault.
func (e *events) ReportNormal(service types.NamespacedName, reason, message string) {
	select {
	case e.queue <- notice{service: service, reason: reason, message: message, kind: corev1.EventTypeNormal, local: true}:
	default: // what calls this has logged it
	}
}

// reasonUnsupported is the reason of Events about what a plane lacks.
const reasonUnsupported = "UnsupportedByMode"

func newEvents(client kubernetes.Interface, nodeName string, log *slog.Logger) *events {
	return &events{client: client, node: nodeName, log: log, queue: make(chan notice, 256)}
}

// report queues a notice; where too many wait it is only logged, since telling
// must never hold up forwarding.
func (e *events) report(n notice) {
	e.log.Warn("not done as asked", "service", n.service.String(), "reason", n.reason, "what", n.message)
	select {
	case e.queue <- n:
	default:
	}
}

func (e *events) problems(list []compile.Problem) {
	for _, p := range list {
		e.report(notice{service: p.Service, reason: p.Reason, message: p.Message})
	}
}

// unsupported reports what changed since the last call and asks for what the
// plane doesn't offer.
func (e *events) unsupported(table *model.Table, lacks []kernel.Unsupported) {
	changes := table.Since(e.reported)
	e.reported = table
	if len(lacks) == 0 {
		return
	}
	seen := map[notice]bool{}
	note := func(name string, lack kernel.Unsupported) {
		n := notice{service: serviceOf(name), reason: reasonUnsupported, message: fmt.Sprintf("%s: %s", lack, lack.Why)}
		if !seen[n] {
			seen[n] = true
			e.report(n)
		}
	}
	for _, c := range changes.Pools {
		for _, lack := range lacks {
			if c.New != nil && poolAsks(c.New, lack) && (c.Old == nil || !poolAsks(c.Old, lack)) {
				note(c.New.ID.Name, lack)
			}
		}
	}
	for _, c := range changes.Frontends {
		for _, lack := range lacks {
			if c.New != nil && frontendAsks(c.New, lack) && (c.Old == nil || !frontendAsks(c.Old, lack)) {
				note(c.New.Name, lack)
			}
		}
	}
}

func poolAsks(p *model.Pool, lack kernel.Unsupported) bool {
	switch lack.Feature {
	case kernel.Scheduling:
		return p.Scheduler != model.DefaultScheduler && string(p.Scheduler) == lack.Value
	case kernel.Weights:
		for _, b := range p.Backends {
			if b.Weight != p.Backends[0].Weight {
				return true
			}
		}
	case kernel.SCTPProtocol:
		return p.ID.Proto == model.SCTP
	case kernel.ManyClients:
		return p.Affinity > 0
	}
	return false
}

func frontendAsks(f *model.Frontend, lack kernel.Unsupported) bool {
	switch lack.Feature {
	case kernel.DirectReturn:
		return f.Routes[model.FromOutside].Direct
	case kernel.StableFlows:
		return f.Routes[model.FromOutside].Stable
	}
	return lack.Feature == kernel.SilentDrop && f.Sources != nil && (lack.Value == "" || lack.Value == f.Proto.String())
}

// serviceOf is the Service that a frontend's or pool's name is of.
func serviceOf(name string) types.NamespacedName {
	namespace, rest, _ := strings.Cut(name, "/")
	service, _, _ := strings.Cut(rest, ":")
	return types.NamespacedName{Namespace: namespace, Name: service}
}

// write makes the Event. kubectl describe finds Events by the object's uid, so
// the Service is looked up: by a list, which is what the role of a proxy allows.
// The Event's name follows from what it says, so that of all nodes that find the
// same only the first is heard.
func (e *events) write(ctx context.Context, n notice) error {
	list, err := e.client.CoreV1().Services(n.service.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, n.service.Name).String(),
	})
	if err != nil {
		return fmt.Errorf("look up the Service: %w", err)
	}
	for _, service := range list.Items {
		if service.Name != n.service.Name {
			continue
		}
		_, err := e.client.CoreV1().Events(service.Namespace).Create(ctx, e.event(&service, n), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("write Event: %w", err)
		}
	}
	return nil
}

func (e *events) event(service *corev1.Service, n notice) *corev1.Event {
	hash := fnv.New64a()
	fmt.Fprint(hash, service.UID, n.reason, n.message)
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: fmt.Sprintf("%s.%x", service.Name, hash.Sum64())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Service", Namespace: service.Namespace, Name: service.Name,
			UID: service.UID, ResourceVersion: service.ResourceVersion,
		},
		Reason: n.reason, Message: n.message, Type: cmp.Or(n.kind, corev1.EventTypeWarning), Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: "fairway", Host: e.node}, ReportingController: "fairway", ReportingInstance: e.node,
	}
}

// writeNode makes an Event about this node. It is found by the node's name, which
// is the uid that kubelet and kube-proxy give in such Events.
func (e *events) writeNode(ctx context.Context, n notice) error {
	event := e.event(&corev1.Service{}, n)
	event.Namespace, event.Name = metav1.NamespaceDefault, fmt.Sprintf("%s.%x", e.node, event.FirstTimestamp.UnixNano())
	event.InvolvedObject = corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.node, UID: types.UID(e.node)}
	if n.reason == reasonConfigured {
		event.Type = corev1.EventTypeNormal
	}
	if _, err := e.client.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("write Event: %w", err)
	}
	return nil
}
