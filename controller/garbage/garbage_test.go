package garbage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	discoveryfake "k8s.io/client-go/discovery/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

const waitTimeout = 30 * time.Second

// world is an API that holds only metadata, every tenth write to which fails.
type world struct {
	*testing.T
	client *metadatafake.FakeMetadataClient
}

var resources = map[string]schema.GroupVersionResource{
	"Pod":        {Version: "v1", Resource: "pods"},
	"ReplicaSet": {Group: "apps", Version: "v1", Resource: "replicasets"},
	"Deployment": {Group: "apps", Version: "v1", Resource: "deployments"},
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := metadatafake.NewSimpleMetadataClient(scheme, objects...)
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if verb := action.GetVerb(); (verb == "delete" || verb == "patch") && rand.IntN(10) == 0 {
			return true, nil, errors.New("injected fault")
		}
		return false, nil, nil
	})
	verbs := metav1.Verbs{"list", "watch", "delete", "get"}
	server := &discoveryfake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: verbs}}},
		{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
			{Name: "replicasets", Kind: "ReplicaSet", Namespaced: true, Verbs: verbs},
			{Name: "deployments", Kind: "Deployment", Namespaced: true, Verbs: verbs},
		}},
	}}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c := New(server, client, slog.New(slog.NewTextHandler(t.Output(), nil)))
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return &world{T: t, client: client}
}

func TestAbsentOwnerIsCollected(t *testing.T) {
	w := newWorld(t,
		thing("Deployment", "web"),
		thing("ReplicaSet", "web-1", ownedBy("Deployment", "web")),
		thing("Pod", "kept", ownedBy("ReplicaSet", "web-1")),
		thing("Pod", "stranger"),
		thing("Pod", "lost", ownedBy("ReplicaSet", "ghost")),
		thing("Pod", "half", ownedBy("ReplicaSet", "web-1"), ownedBy("ReplicaSet", "ghost")),
		thing("Pod", "unknowable", ownedBy("Widget", "gadget")),
		thing("Pod", "other-life", func(o *metav1.PartialObjectMetadata) {
			ownedBy("ReplicaSet", "web-1")(o)
			o.OwnerReferences[0].UID = "uid of an earlier web-1"
		}),
	)
	w.expect("Deployment/web ReplicaSet/web-1<web Pod/half<web-1 Pod/kept<web-1 Pod/stranger Pod/unknowable<gadget")
}

func TestDeletionGoesDown(t *testing.T) {
	w := newWorld(t,
		thing("Deployment", "web"),
		thing("ReplicaSet", "web-1", ownedBy("Deployment", "web")),
		thing("Pod", "a", ownedBy("ReplicaSet", "web-1")),
		thing("Pod", "lost", ownedBy("ReplicaSet", "ghost")),
	)
	w.expect("Deployment/web ReplicaSet/web-1<web Pod/a<web-1")
	for w.client.Resource(resources["Deployment"]).Namespace("default").Delete(t.Context(), "web", metav1.DeleteOptions{}) != nil {
	}
	w.expect("")
}

func TestForegroundWaitsForDependents(t *testing.T) {
	w := newWorld(t,
		thing("ReplicaSet", "web-1", deletedWith(metav1.FinalizerDeleteDependents)),
		thing("Pod", "a", ownedBy("ReplicaSet", "web-1")),
		thing("Pod", "b", ownedBy("ReplicaSet", "web-1")),
	)
	w.expect("ReplicaSet/web-1")
	w.expectNoFinalizer("ReplicaSet", "web-1")
}

func TestOrphansAreLeftAlone(t *testing.T) {
	w := newWorld(t,
		thing("ReplicaSet", "web-1", deletedWith(metav1.FinalizerOrphanDependents)),
		thing("Pod", "a", ownedBy("ReplicaSet", "web-1")),
	)
	w.expect("ReplicaSet/web-1 Pod/a")
	w.expectNoFinalizer("ReplicaSet", "web-1")
}

func thing(kind, name string, changes ...func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid of " + name)}}
	o.SetGroupVersionKind(resources[kind].GroupVersion().WithKind(kind))
	for _, change := range changes {
		change(o)
	}
	return o
}

func ownedBy(kind, name string) func(*metav1.PartialObjectMetadata) {
	version := "apps/v1"
	return func(o *metav1.PartialObjectMetadata) {
		o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{
			APIVersion: version, Kind: kind, Name: name, UID: types.UID("uid of " + name), BlockOwnerDeletion: ptr.To(true)})
	}
}

func deletedWith(finalizer string) func(*metav1.PartialObjectMetadata) {
	return func(o *metav1.PartialObjectMetadata) {
		o.DeletionTimestamp = ptr.To(metav1.Now())
		o.Finalizers = []string{finalizer}
	}
}

func (w *world) get(kind, name string) *metav1.PartialObjectMetadata {
	w.Helper()
	o, err := w.client.Resource(resources[kind]).Namespace("default").Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return o
}

// expect waits until exactly the objects named, each with its owners, are left.
func (w *world) expect(want string) {
	w.Helper()
	w.eventually("want "+want, func() error {
		var all []string
		for _, kind := range []string{"Deployment", "ReplicaSet", "Pod"} {
			list, err := w.client.Resource(resources[kind]).Namespace("default").List(w.Context(), metav1.ListOptions{})
			if err != nil {
				w.Fatal(err)
			}
			var names []string
			for _, o := range list.Items {
				name := kind + "/" + o.Name
				for _, ref := range o.OwnerReferences {
					name += "<" + ref.Name
				}
				names = append(names, name)
			}
			slices.Sort(names)
			all = append(all, names...)
		}
		if got := strings.Join(all, " "); got != want {
			return fmt.Errorf("got %s", got)
		}
		return nil
	})
}

func (w *world) expectNoFinalizer(kind, name string) {
	w.Helper()
	w.eventually(name+" let go of", func() error {
		if left := w.get(kind, name).Finalizers; len(left) > 0 {
			return fmt.Errorf("it has %v", left)
		}
		return nil
	})
}

func (w *world) eventually(what string, check func() error) {
	w.Helper()
	for late := range wait.Tries(waitTimeout) {
		err := check()
		if err == nil {
			return
		}
		if late {
			w.Fatalf("%s: still not so: %v", what, err)
		}
	}
}
