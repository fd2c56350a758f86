package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/test/fakeapi"
)

// playVariable makes the test binary play the API server.
const playVariable = "FAIRWAY_TEST_PLAY_API"

const testToken = "a-token"

func TestMain(m *testing.M) {
	if os.Getenv(playVariable) == "" {
		os.Exit(m.Run())
	}
	s := fakeapi.NewServer()
	s.Token, s.Rules = testToken, fakeapi.NodeProxier()
	if err := s.Play("127.0.0.1:0", os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// api is a foreign API in a process of its own.
type api struct {
	t       *testing.T
	process *fakeapi.Process
}

func startAPI(t *testing.T) *api {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), playVariable+"=1")
	process, err := fakeapi.Start(command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Close(); err != nil {
			t.Error(err)
		}
	})
	return &api{t, process}
}

func (a *api) do(format string, args ...any) string {
	a.t.Helper()
	text, err := a.process.Do(fmt.Sprintf(format, args...))
	if err != nil {
		a.t.Fatal(err)
	}
	return text
}

func (a *api) seen() fakeapi.Seen {
	a.t.Helper()
	var seen fakeapi.Seen
	if err := json.Unmarshal([]byte(a.do("seen")), &seen); err != nil {
		a.t.Fatal(err)
	}
	return seen
}

func (a *api) service(name string) {
	a.t.Helper()
	text, err := json.Marshal(service(name))
	if err != nil {
		a.t.Fatal(err)
	}
	a.do("apply %s", text)
}

func (a *api) client(protocols ...string) kubernetes.Interface {
	a.t.Helper()
	client, err := Client(Tune(&rest.Config{
		Host: a.process.URL, BearerToken: testToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: a.process.CA, NextProtos: protocols},
	}))
	if err != nil {
		a.t.Fatal(err)
	}
	return client
}

// follow watches Services until the test ends.
func (a *api) follow(protocols ...string) *collector {
	a.t.Helper()
	got := &collector{names: map[string]bool{}}
	watchUntilEnd(a.t, Source{Client: a.client(protocols...).CoreV1().RESTClient(), Resource: "services"}, got.sink())
	return got
}

func watchUntilEnd[T runtime.Object](t *testing.T, source Source, sink Sink[T]) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); Watch(ctx, source, sink) }()
	t.Cleanup(func() { cancel(); <-done })
}

// watching waits until so many watches have been opened.
func (a *api) watching(n int) {
	a.t.Helper()
	for late := range wait.Tries(30 * time.Second) {
		if a.seen().Watches >= n {
			break
		}
		if late {
			a.t.Fatalf("%d watches after 30 s, want %d", a.seen().Watches, n)
		}
	}
}

// TestForeignAPI plays what Kubernetes promises, over each way of talking to it.
func TestForeignAPI(t *testing.T) {
	for _, way := range []struct {
		name      string
		settings  []string
		protocols []string
		encoding  string
	}{
		{"protobuf over HTTP 2", nil, nil, runtime.ContentTypeProtobuf},
		{"protobuf over HTTP 1", nil, []string{"http/1.1"}, runtime.ContentTypeProtobuf},
		{"JSON over HTTP 1", []string{"json on"}, []string{"http/1.1"}, runtime.ContentTypeJSON},
		{"streamed lists", []string{"watchlist on"}, nil, runtime.ContentTypeProtobuf},
		{"streamed lists as JSON", []string{"watchlist on", "json on"}, nil, runtime.ContentTypeJSON},
	} {
		t.Run(way.name, func(t *testing.T) {
			a := startAPI(t)
			for _, line := range way.settings {
				a.do("%s", line)
			}
			streamed := slices.Contains(way.settings, "watchlist on")
			a.service("a")
			a.service("b")
			got := a.follow(way.protocols...)
			got.wait(t, 1, "a", "b")
			a.watching(1)
			a.service("c")
			a.do("delete services default/b")
			got.wait(t, 1, "a", "c")
			playBreaks(t, a, got)
			playBookmark(t, a, got)
			playExpiry(t, a, got)
			seen := a.seen()
			if streamed != (seen.Streamed > 0) || streamed != (seen.Lists == 0) {
				t.Errorf("lists: %d, streamed %d", seen.Lists, seen.Streamed)
			}
			for _, e := range seen.Encodings {
				if !strings.HasSuffix(e, " "+way.encoding) {
					t.Errorf("spoken: %s", e)
				}
			}
		})
	}
}

// playBreaks ends watches in every way; the watch goes on where it was, without
// a new list.
func playBreaks(t *testing.T, a *api, got *collector) {
	t.Helper()
	lists, synced := a.seen().Lists, got.times()
	for i, how := range []string{"end", "cut", "half", "cut"} {
		watches := a.seen().Watches
		a.do("%s", how)
		a.service(fmt.Sprint("during-", i)) // may be missed by the watch that ends
		a.watching(watches + 1)
		a.service(fmt.Sprint("after-", i))
		a.do("delete services default/during-%d", i)
		got.wait(t, synced, "a", fmt.Sprint("after-", i), "c")
		a.do("delete services default/after-%d", i)
		got.wait(t, synced, "a", "c")
	}
	if seen := a.seen(); seen.Lists != lists || got.times() != synced {
		t.Errorf("breaks led to %d further lists", seen.Lists-lists)
	}
}

// playBookmark: a bookmark is what a watch resumes at, after the version of the
// last object has expired.
func playBookmark(t *testing.T, a *api, got *collector) {
	t.Helper()
	lists, synced := a.seen().Lists, got.times()
	a.do("touch")
	a.do("touch")
	a.do("bookmark")
	a.service("last") // comes after the bookmark, so that it has been read
	got.wait(t, synced, "a", "c", "last")
	a.do("delete services default/last")
	got.wait(t, synced, "a", "c")
	a.do("touch")
	a.do("bookmark")
	a.do("expire")
	watches := a.seen().Watches
	a.do("end")
	a.watching(watches + 1)
	a.service("d")
	got.wait(t, synced, "a", "c", "d")
	if seen := a.seen(); seen.Lists != lists || got.times() != synced {
		t.Errorf("in spite of the bookmark: %d further lists", seen.Lists-lists)
	}
	a.do("delete services default/d")
	got.wait(t, synced, "a", "c")
}

// playExpiry: the history is gone, told in the stream, at the start of a watch,
// or by a status; what was deleted meanwhile is only missing from the new list.
func playExpiry(t *testing.T, a *api, got *collector) {
	t.Helper()
	for i, how := range []string{"open stream", "new stream", "status"} {
		synced := got.times()
		gone, comes := fmt.Sprint("gone-", i), fmt.Sprint("comes-", i)
		a.service(gone)
		got.wait(t, synced, "a", "c", gone)
		a.do("gonebystatus %s", map[bool]string{true: "on", false: "off"}[how == "status"])
		if how == "open stream" {
			a.do("delete services default/%s", gone)
			a.service(comes)
			a.do("gone")
		} else {
			a.do("mute on")
			a.do("delete services default/%s", gone)
			a.service(comes)
			a.do("expire")
			a.do("cut")
			a.do("mute off")
		}
		got.wait(t, synced+1, "a", "c", comes)
		a.do("delete services default/%s", comes)
		got.wait(t, synced+1, "a", "c")
	}
}

func (c *collector) times() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.synced
}

// TestForeignAPIHoldsBack: as long as the server has no time, clients wait as
// they are told.
func TestForeignAPIHoldsBack(t *testing.T) {
	a := startAPI(t)
	a.service("a")
	a.do("refuse 3 1")
	got := a.follow()
	got.wait(t, 1, "a")
	a.watching(1)
	a.do("refuse 2 1")
	a.do("cut")
	a.watching(2)
	a.service("b")
	got.wait(t, 1, "a", "b")
	if seen := a.seen(); seen.Refused != 5 || seen.Early != 0 {
		t.Errorf("%d requests were held back, want 5; %d came again before the time they were told", seen.Refused, seen.Early)
	}
}

// TestForeignAPIListsInPages: slow pages smaller than asked for, a continuation
// that expires between them, and nothing lost by either.
func TestForeignAPIListsInPages(t *testing.T) {
	a := startAPI(t)
	var want []string
	for i := range 40 {
		want = append(want, fmt.Sprintf("s%02d", i))
		a.service(want[i])
	}
	a.do("page 7")
	a.do("slow 20")
	got := a.follow()
	got.wait(t, 1, want...)
	if seen := a.seen(); seen.Pages != 6 {
		t.Errorf("%d pages, want 6 of 7 each", seen.Pages)
	}
	a.watching(1)
	a.do("stale 1")
	a.do("gone")
	a.do("delete services default/s00")
	got.wait(t, 2, want[1:]...)
	if got.times() != 2 {
		t.Errorf("%d complete lists, want 2: half a list is none", got.times())
	}
}

// TestRecordedObjects: what clusters of other versions serve arrives in either
// encoding with all that a node's proxy reads and without what it doesn't.
func TestRecordedObjects(t *testing.T) {
	versions, err := fakeapi.Versions()
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		for _, encoding := range []string{"json on", "json off"} {
			t.Run(version+" "+encoding, func(t *testing.T) {
				a := startAPI(t)
				a.do("%s", encoding)
				objects, err := fakeapi.Recorded(version)
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range objects {
					a.do("apply %s", bytes.ReplaceAll(o, []byte("\n"), nil))
				}
				client := a.client()
				compareRecorded[corev1.Service](t, client.CoreV1().RESTClient(), "services", "Service", objects)
				compareRecorded[corev1.Node](t, client.CoreV1().RESTClient(), "nodes", "Node", objects)
				compareRecorded[discoveryv1.EndpointSlice](t, client.DiscoveryV1().RESTClient(), "endpointslices", "EndpointSlice", objects)
			})
		}
	}
}

// compareRecorded watches a resource and compares with what was recorded.
func compareRecorded[T any, P interface {
	*T
	runtime.Object
	GetName() string
	GetNamespace() string
	SetResourceVersion(string)
}](t *testing.T, client rest.Interface, resource, kind string, objects [][]byte) {
	t.Helper()
	var mu sync.Mutex
	got := map[string]P{}
	synced := make(chan struct{}, 16)
	watchUntilEnd(t, Source{Client: client, Resource: resource}, Sink[P]{
		Set:    func(o P) { mu.Lock(); got[o.GetNamespace()+"/"+o.GetName()] = o; mu.Unlock() },
		Delete: func(types.NamespacedName) {},
		Synced: func() { synced <- struct{}{} },
	})
	select {
	case <-synced:
	case <-time.After(30 * time.Second):
		t.Fatalf("no %s after 30 s", resource)
	}
	mu.Lock()
	defer mu.Unlock()
	recorded := 0
	for _, text := range objects {
		var meta struct{ Kind string }
		if err := json.Unmarshal(text, &meta); err != nil || meta.Kind != kind {
			continue
		}
		recorded++
		want := P(new(T))
		if err := json.Unmarshal(text, want); err != nil {
			t.Fatal(err)
		}
		if _, err := Trim(want); err != nil {
			t.Fatal(err)
		}
		have := got[want.GetNamespace()+"/"+want.GetName()]
		if have == nil {
			t.Errorf("%s %s didn't arrive", kind, want.GetName())
			continue
		}
		have.SetResourceVersion("")
		want.SetResourceVersion("")
		have.GetObjectKind().SetGroupVersionKind(want.GetObjectKind().GroupVersionKind())
		if a, b := comparable(t, have), comparable(t, want); !reflect.DeepEqual(a, b) {
			t.Errorf("%s %s arrived as\n%v\nwant\n%v", kind, want.GetName(), a, b)
		}
	}
	if recorded == 0 || recorded != len(got) {
		t.Errorf("%d objects of kind %s arrived, %d were recorded", len(got), kind, recorded)
	}
}

// comparable is an object's JSON, in which nil and empty are the same.
func comparable(t *testing.T, o any) (m map[string]any) {
	t.Helper()
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}
