// Package proposal joins objects that somebody means to apply with those that run. The API server
// says by a dry run what it would make of each, with its defaults, its admission and its refusals.
// Where the user has no right to ask that, objects are merged here as kubectl apply merges them.
//
//	proposal.go  what is proposed, and the two worlds
//	lists.go     what runs: one list of each kind
//	pools.go     pools and advertisements
//	merge.go     what becomes of one object
//	rollout.go   pods that workloads will make, and endpoints that follow
//	unknown.go   names for addresses and ports that the server will choose
package proposal

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/fairway-net/fairway/diagnose/change"
	"github.com/fairway-net/fairway/internal/manifest"
)

// Proposal is what is proposed, joined with what runs.
type Proposal struct {
	Before, After change.World
	Refused       []change.Refused
	NotChecked    []string
	// Addresses and Ports name what the server will choose.
	Addresses map[netip.Addr]string
	Ports     map[uint16]string
	Places    map[string]manifest.Place // of the files' objects
}

// atOnce is how many dry runs are asked for at a time.
const atOnce = 8

// joiner joins manifests with an API.
type joiner struct {
	*Proposal
	client     dynamic.Interface
	mapper     *restmapper.DeferredDiscoveryRESTMapper
	namespace  string // of objects that name none
	proposed   []*unstructured.Unstructured
	namespaces map[string]bool // that the manifests make
	before     world
	after      world
	// changed are the objects that would be others, with what they are now; nil for new ones.
	changed []pair
	local   bool // some were merged here
	mu      sync.Mutex
}

// pair is an object before and after.
type pair struct{ was, is *object }

// Read reads files and the objects that run, and asks what the server would make of them. It
// fails if there is no API, no file, or no right to list Services.
func Read(ctx context.Context, config *rest.Config, files []string, namespace string) (*Proposal, error) {
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reach the API: %w", err)
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reach the API: %w", err)
	}
	j := &joiner{
		Proposal: &Proposal{Addresses: map[netip.Addr]string{}, Ports: map[uint16]string{}, Places: manifest.Places(files...)},
		client:   client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found)),
		namespace: namespace, namespaces: map[string]bool{},
	}
	if err := j.readFiles(files); err != nil {
		return nil, err
	}
	if err := j.list(ctx); err != nil {
		return nil, err
	}
	j.after = j.before.clone()
	j.join(ctx)
	j.nameUnknown()
	j.rollOut()
	if j.Before, err = j.before.typed(); err != nil {
		return nil, err
	}
	j.After, err = j.after.typed()
	slices.SortFunc(j.Refused, func(a, b change.Refused) int { return strings.Compare(a.Object, b.Object) })
	return j.Proposal, err
}

// readFiles reads the manifests. A file that can't be read is refused, and the others are judged.
func (j *joiner) readFiles(files []string) error {
	for _, file := range files {
		infos, err := resource.NewLocalBuilder().Unstructured().ContinueOnError().
			FilenameParam(false, &resource.FilenameOptions{Filenames: []string{file}}).Flatten().Do().Infos()
		if err != nil {
			j.Refused = append(j.Refused, change.Refused{Object: "file " + file, Reason: err.Error()})
		}
		for _, info := range infos {
			u, is := info.Object.(*unstructured.Unstructured)
			if !is {
				continue
			}
			if u.GetKind() == "Namespace" {
				j.namespaces[u.GetName()] = true
			}
			j.proposed = append(j.proposed, u)
		}
	}
	if len(j.proposed) == 0 && len(j.Refused) == 0 {
		return fmt.Errorf("no objects in %s", strings.Join(files, ", "))
	}
	return nil
}

// join asks what becomes of each object, several at a time.
func (j *joiner) join(ctx context.Context) {
	var asking sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, u := range j.proposed {
		places <- struct{}{}
		asking.Go(func() {
			defer func() { <-places }()
			j.joinOne(ctx, u)
		})
	}
	asking.Wait()
	if j.local {
		j.NotChecked = append(j.NotChecked, "what the server would refuse or fill in: this account may not write, so objects were merged here")
	}
}

// joinOne asks what becomes of one object.
func (j *joiner) joinOne(ctx context.Context, u *unstructured.Unstructured) {
	mapping, err := j.mapper.RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version)
	if err != nil {
		j.refuse(u, fmt.Sprintf("the server has no such kind: %v", err))
		return
	}
	namespaced := mapping.Scope.Name() == "namespace"
	if namespaced && u.GetNamespace() == "" {
		u.SetNamespace(j.namespace)
	}
	gvr := mapping.Resource
	var where dynamic.ResourceInterface = j.client.Resource(gvr)
	if namespaced {
		where = j.client.Resource(gvr).Namespace(u.GetNamespace())
	}
	name := types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
	live := j.before[kindOf(u)][name]
	if live == nil && !j.before.has(kindOf(u)) { // a kind that isn't listed
		live = j.get(ctx, where, u)
	}
	is, refused := j.merged(ctx, where, u, live)
	if refused != "" {
		j.refuse(u, refused)
	}
	if is == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	made := &object{raw: is}
	j.changed = append(j.changed, pair{live, made})
	j.after.set(kindOf(u), name, made)
}

// refuse notes that the server would not take an object.
func (j *joiner) refuse(u *unstructured.Unstructured, reason string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	name := u.GetKind() + " " + u.GetName()
	if u.GetNamespace() != "" {
		name = u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
	}
	one := change.Refused{Object: name, Reason: reason}
	for _, known := range []string{name, u.GetKind() + " " + u.GetName(), u.GetKind() + " " + corev1.NamespaceDefault + "/" + u.GetName()} {
		if p, there := j.Places[known]; there {
			one.At = p.String()
			break
		}
	}
	j.Refused = append(j.Refused, one)
}
