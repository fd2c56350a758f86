package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// events tells the authors of Services, once each, what of them is not done.
type events struct {
	client   kubernetes.Interface
	recorder record.EventRecorder
	start    func()
	stop     func()
	log      *slog.Logger
	queue    chan notice
	judged   *model.Table // whose lacks have been told
}

// notice is an Event to be.
type notice struct {
	service         types.NamespacedName
	reason, message string
}

// reasonUnsupported is the reason of Events about what a plane lacks.
const reasonUnsupported = "UnsupportedByMode"

func newEvents(client kubernetes.Interface, nodeName string, log *slog.Logger) *events {
	broadcaster := record.NewBroadcaster()
	return &events{
		client:   client,
		recorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "fairway", Host: nodeName}),
		start: func() {
			broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
		},
		stop:  broadcaster.Shutdown,
		log:   log,
		queue: make(chan notice, 256),
	}
}

// tell queues a notice; where too many wait it is only logged, since telling
// must never hold up forwarding.
func (e *events) tell(n notice) {
	e.log.Warn("not done as asked", "service", n.service.String(), "reason", n.reason, "what", n.message)
	select {
	case e.queue <- n:
	default:
	}
}

func (e *events) problems(list []compile.Problem) {
	for _, p := range list {
		e.tell(notice{p.Service, p.Reason, p.Message})
	}
}

// lacks tells about what changed since the last call and asks for what the
// plane doesn't offer.
func (e *events) lacks(table *model.Table, lacks []kernel.Lack) {
	changes := table.Since(e.judged)
	e.judged = table
	if len(lacks) == 0 {
		return
	}
	told := map[notice]bool{}
	note := func(name string, lack kernel.Lack) {
		n := notice{serviceOf(name), reasonUnsupported, fmt.Sprintf("%s: %s", describe(lack), lack.Why)}
		if !told[n] {
			told[n] = true
			e.tell(n)
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
			if c.Old == nil && frontendAsks(c.New, lack) {
				note(c.New.Name, lack)
			}
		}
	}
}

func poolAsks(p *model.Pool, lack kernel.Lack) bool {
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
	}
	return false
}

func frontendAsks(f *model.Frontend, lack kernel.Lack) bool {
	return lack.Feature == kernel.SilentDrop && f.Sources != nil && (lack.Value == "" || lack.Value == f.Proto.String())
}

func describe(lack kernel.Lack) string {
	if lack.Value == "" {
		return string(lack.Feature)
	}
	return string(lack.Feature) + " " + lack.Value
}

// serviceOf is the Service that a frontend's or pool's name is of.
func serviceOf(name string) types.NamespacedName {
	namespace, rest, _ := strings.Cut(name, "/")
	service, _, _ := strings.Cut(rest, ":")
	return types.NamespacedName{Namespace: namespace, Name: service}
}

// run writes queued notices as Events until ctx is done.
func (e *events) run(ctx context.Context) error {
	e.start()
	defer e.stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-e.queue:
			e.write(ctx, n)
		}
	}
}

// write makes the Event. kubectl describe finds Events by the object's uid, so
// the Service is looked up: by a list, which is what the role of a proxy allows.
func (e *events) write(ctx context.Context, n notice) {
	list, err := e.client.CoreV1().Services(n.service.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, n.service.Name).String(),
	})
	if err != nil || len(list.Items) == 0 {
		e.log.Warn("no Event written", "service", n.service.String(), "error", err)
		return
	}
	e.recorder.Event(&list.Items[0], corev1.EventTypeWarning, n.reason, n.message)
}
