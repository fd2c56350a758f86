package watch

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	gatewayfake "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/fake"
)

const waitTimeout = time.Minute

// referring is a watch of Secrets, and what it asked of the API.
type referring struct {
	*testing.T
	*Watch
	api *fake.Clientset

	mu    sync.Mutex
	asked []string
}

// newReferring has Secrets of these names; forbidden says what the API refuses.
func newReferring(t *testing.T, forbidden func(ktesting.Action) bool, names ...string) *referring {
	before := []time.Duration{askSoon, askLater, askWatch}
	askSoon, askLater = time.Millisecond, 10*time.Millisecond
	r := &referring{T: t, api: fake.NewClientset()}
	for _, name := range names {
		if err := r.api.Tracker().Add(secretOf(name, "first")); err != nil {
			t.Fatal(err)
		}
	}
	refuse := func(a ktesting.Action) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		text := a.GetVerb() + " " + a.GetNamespace()
		switch a := a.(type) {
		case ktesting.GetAction:
			text += "/" + a.GetName()
		case ktesting.ListAction:
			text += "?" + a.GetListRestrictions().Fields.String()
		case ktesting.WatchAction:
			text += "?" + a.GetWatchRestrictions().Fields.String()
		}
		if !slices.Contains(r.asked, text) {
			r.asked = append(r.asked, text)
		}
		if forbidden != nil && forbidden(a) {
			return apierrors.NewForbidden(corev1.Resource("secrets"), "", nil)
		}
		return nil
	}
	r.api.PrependReactor("*", "secrets", func(a ktesting.Action) (bool, runtime.Object, error) {
		err := refuse(a)
		return err != nil, nil, err
	})
	r.api.PrependWatchReactor("secrets", func(a ktesting.Action) (bool, apiwatch.Interface, error) {
		if err := refuse(a); err != nil {
			return true, nil, err
		}
		var options metav1.ListOptions
		if watch, ok := a.(ktesting.WatchActionImpl); ok {
			options = watch.ListOptions
		}
		w, err := r.api.Tracker().Watch(a.GetResource(), a.GetNamespace(), options)
		if err != nil {
			return true, nil, err
		}
		// Watches trim what they are given, which is the tracker's own.
		return true, apiwatch.Filter(w, func(e apiwatch.Event) (apiwatch.Event, bool) {
			e.Object = e.Object.DeepCopyObject()
			return e, true
		}), nil
	})
	r.Watch = NewFor(r.api, gatewayfake.NewSimpleClientset(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	t.Cleanup(func() {
		r.end()
		r.threads.Wait()
		askSoon, askLater, askWatch = before[0], before[1], before[2]
	})
	return r
}

func secretOf(name, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string][]byte{"tls.crt": []byte(value)}}
}

func names(list ...string) map[types.NamespacedName]struct{} {
	out := map[types.NamespacedName]struct{}{}
	for _, n := range list {
		out[types.NamespacedName{Namespace: "shop", Name: n}] = struct{}{}
	}
	return out
}

func (r *referring) refer(list ...string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	return r.Refer(ctx, names(list...), nil)
}

// await waits until a Secret has a value; "" if it is not to be there.
func (r *referring) await(name, value string) {
	r.Helper()
	for late := range wait.Tries(waitTimeout) {
		s := r.Objects().Secrets[types.NamespacedName{Namespace: "shop", Name: name}]
		if s == nil && value == "" || s != nil && string(s.Data["tls.crt"]) == value {
			return
		}
		if late {
			r.Fatalf("Secret %s is %v, want %q", name, s, value)
		}
	}
}

func (r *referring) set(name, value string) {
	r.Helper()
	if _, err := r.api.CoreV1().Secrets("shop").Update(context.Background(), secretOf(name, value), metav1.UpdateOptions{}); err != nil {
		r.Fatal(err)
	}
}

// change writes a Secret until that is seen: the fake API forgets what happens
// between a list and its watch.
func (r *referring) change(name, value string) {
	r.Helper()
	for deadline := time.Now().Add(waitTimeout); ; {
		r.set(name, value)
		for range wait.Tries(200 * time.Millisecond) {
			if s := r.Objects().Secrets[types.NamespacedName{Namespace: "shop", Name: name}]; s != nil && string(s.Data["tls.crt"]) == value {
				return
			}
		}
		if time.Now().After(deadline) {
			r.Fatalf("Secret %s never becomes %q", name, value)
		}
	}
}

func (r *referring) questions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// TestOnlyReferred: Secrets to which nothing refers are never read, and what
// happens to the others is told.
func TestOnlyReferred(t *testing.T) {
	r := newReferring(t, nil, "web", "other")
	if !r.refer("web", "missing") {
		t.Fatal("nothing was new")
	}
	if got := r.Objects().Secrets; len(got) != 1 {
		t.Errorf("read were %v", got)
	}
	if c := r.Take(); !c.None() {
		t.Errorf("what was waited for is told as a change: %v", c.Secrets)
	}
	if r.refer("web", "missing") {
		t.Error("the same names are new")
	}
	r.awaitQuestion("watch shop?metadata.name=web")
	r.awaitQuestion("watch shop?metadata.name=missing")
	r.change("web", "second")
	if c := r.Take(); len(c.Secrets) != 1 {
		t.Errorf("a change is told as %v", c.Secrets)
	}
	if err := r.api.Tracker().Add(secretOf("missing", "")); err != nil {
		t.Fatal(err)
	}
	r.change("missing", "late")
	if err := r.api.CoreV1().Secrets("shop").Delete(context.Background(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.await("web", "")
	r.refer("missing")
	for _, q := range r.questions() {
		if q == "list ?" || q == "watch ?" || q == "get shop/other" || q == "list shop?" {
			t.Errorf("asked: %s", q)
		}
	}
}

// awaitQuestion waits until the API was asked something.
func (r *referring) awaitQuestion(text string) {
	r.Helper()
	for late := range wait.Tries(waitTimeout) {
		if slices.Contains(r.questions(), text) {
			break
		}
		if late {
			r.Fatalf("never asked: %s, but %v", text, r.questions())
		}
	}
}

// TestReadOnly: who may read Secrets but not watch any learns of changes, too.
func TestReadOnly(t *testing.T) {
	r := newReferring(t, func(a ktesting.Action) bool { return a.GetVerb() == "list" || a.GetVerb() == "watch" }, "web")
	r.refer("web", "missing")
	r.await("web", "first")
	r.change("web", "second")
	if err := r.api.Tracker().Add(secretOf("missing", "late")); err != nil {
		t.Fatal(err)
	}
	r.await("missing", "late")
}

// TestForbidden: a Secret that may not be read holds up nothing.
func TestForbidden(t *testing.T) {
	refused := func(a ktesting.Action) bool {
		g, isGet := a.(ktesting.GetAction)
		return !isGet || g.GetName() == "closed"
	}
	r := newReferring(t, refused, "web", "closed")
	r.refer("web", "closed")
	r.await("web", "first")
	r.await("closed", "")
}

// TestManyReferred: a great many are followed by one watch, which keeps nothing
// of those to which nothing refers.
func TestManyReferred(t *testing.T) {
	var list []string
	for i := range watchesEach + 20 {
		list = append(list, fmt.Sprint("web-", i))
	}
	r := newReferring(t, nil, append(list, "other")...)
	r.refer(list...)
	r.awaitQuestion("watch ?")
	for late := range wait.Tries(waitTimeout) {
		if r.secrets.hasAll() {
			break
		}
		if late {
			t.Fatal("no watch of all")
		}
	}
	r.change("web-7", "second")
	if got := r.Objects().Secrets; len(got) != len(list) {
		t.Errorf("%d Secrets are kept of %d", len(got), len(list))
	}
}
