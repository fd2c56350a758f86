package noendpoints

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/controller/cluster"
)

// rig is a controller over an API of fakes, with a clock of its own.
type rig struct {
	*testing.T
	controller *Controller
	events     *record.FakeRecorder
	now        time.Time
}

func newRig(t *testing.T, objects ...runtime.Object) *rig {
	t.Helper()
	c, err := cluster.New(fake.NewClientset(objects...))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, events: record.NewFakeRecorder(10), now: time.Unix(1000, 0)}
	r.controller = New(c, r.events, slog.New(slog.DiscardHandler))
	r.controller.now = func() time.Time { return r.now }
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// look lets time pass and has the controller look at the Service web.
func (r *rig) look(after time.Duration) (event string) {
	r.Helper()
	r.now = r.now.Add(after)
	if err := r.controller.sync(r.Context(), types.NamespacedName{Namespace: "default", Name: "web"}); err != nil {
		r.Fatal(err)
	}
	select {
	case event = <-r.events.Events:
	default:
	}
	return event
}

func web(selector map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{Selector: selector}}
}

func pod(name, app string, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": app}},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

func TestUnmatched(t *testing.T) {
	r := newRig(t, web(map[string]string{"app": "helo"}), pod("a", "hello", corev1.ConditionTrue), pod("b", "hello", corev1.ConditionTrue))
	if got := r.look(0); got != "" {
		t.Errorf("at once: %s", got)
	}
	want := "Warning NoEndpoints selector app=helo matches no pod; app=hello would match 2"
	if got := r.look(unmatchedGrace); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := r.look(time.Hour); got != "" {
		t.Errorf("said twice: %s", got)
	}
}

func TestUnready(t *testing.T) {
	r := newRig(t, web(map[string]string{"app": "hello"}), pod("a", "hello", corev1.ConditionFalse))
	for _, after := range []time.Duration{0, unmatchedGrace} {
		if got := r.look(after); got != "" {
			t.Errorf("after %s: %s", after, got)
		}
	}
	if got := r.look(unreadyGrace); !strings.Contains(got, "none of the 1 pods that selector app=hello matches is ready") {
		t.Errorf("got %q", got)
	}
}

func TestWell(t *testing.T) {
	for name, objects := range map[string][]runtime.Object{
		"ready":       {web(map[string]string{"app": "hello"}), pod("a", "hello", corev1.ConditionTrue)},
		"no selector": {web(nil)},
		"deleted":     nil,
	} {
		r := newRig(t, objects...)
		if got := r.look(0) + r.look(time.Hour); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}
