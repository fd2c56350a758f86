package garbage

import (
	"slices"
	"sync"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// rememberGone is how many deleted owners are remembered, to spare the server
// a question for each of their dependents. Uids never come back.
const rememberGone = 4096

// object is what is known of one object of the cluster: as little as possible,
// since this is about every object there is.
type object struct {
	uid        types.UID
	kind       schema.GroupVersionResource
	namespace  string
	name       string
	owners     []owner
	deleting   bool
	foreground bool
	orphan     bool
}

type owner struct {
	uid    types.UID
	name   string
	kind   unique.Handle[schema.GroupVersionKind]
	blocks bool
}

// graph holds all objects and who depends on whom.
type graph struct {
	mu         sync.RWMutex
	objects    map[types.UID]*object
	dependents map[types.UID]map[types.UID]*object
	gone       *lru.Cache
}

func newGraph() *graph {
	return &graph{
		objects:    map[types.UID]*object{},
		dependents: map[types.UID]map[types.UID]*object{},
		gone:       lru.New(rememberGone),
	}
}

func newObject(kind schema.GroupVersionResource, meta *metav1.PartialObjectMetadata) *object {
	o := &object{
		uid:        meta.UID,
		kind:       kind,
		namespace:  unique.Make(meta.Namespace).Value(),
		name:       meta.Name,
		deleting:   meta.DeletionTimestamp != nil,
		foreground: slices.Contains(meta.Finalizers, metav1.FinalizerDeleteDependents),
		orphan:     slices.Contains(meta.Finalizers, metav1.FinalizerOrphanDependents),
	}
	for _, ref := range meta.OwnerReferences {
		o.owners = append(o.owners, owner{
			uid:    ref.UID,
			name:   ref.Name,
			kind:   unique.Make(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)),
			blocks: ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion,
		})
	}
	return o
}

// set enters o in place of what was known of it and returns the uids to look
// at: itself if one of its owners is unknown or it is being deleted in a way
// that concerns its dependents, and owners that may have waited for it.
func (g *graph) set(o *object) []types.UID {
	g.mu.Lock()
	defer g.mu.Unlock()
	var look []types.UID
	if before := g.objects[o.uid]; before != nil {
		look = g.unlink(before)
	}
	g.objects[o.uid] = o
	for _, ref := range o.owners {
		if g.dependents[ref.uid] == nil {
			g.dependents[ref.uid] = map[types.UID]*object{}
		}
		g.dependents[ref.uid][o.uid] = o
	}
	if o.deleting && (o.foreground || o.orphan) || !o.deleting && slices.ContainsFunc(o.owners, g.doubtful) {
		look = append(look, o.uid)
	}
	return look
}

// remove forgets the object and returns the uids to look at: its dependents,
// and owners that may have waited for it. If the watch saw it go, its
// dependents go without the server being asked.
func (g *graph) remove(uid types.UID, seen bool) []types.UID {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.objects[uid]
	if o == nil {
		return nil
	}
	look := g.unlink(o)
	delete(g.objects, uid)
	if seen {
		g.gone.Add(uid, nil)
	}
	for dependent := range g.dependents[uid] {
		look = append(look, dependent)
	}
	return look
}

// unlink takes o from its owners and returns those that wait for dependents.
func (g *graph) unlink(o *object) []types.UID {
	var waiting []types.UID
	for _, ref := range o.owners {
		delete(g.dependents[ref.uid], o.uid)
		if len(g.dependents[ref.uid]) == 0 {
			delete(g.dependents, ref.uid)
		}
		if owner := g.objects[ref.uid]; owner != nil && owner.waits() {
			waiting = append(waiting, owner.uid)
		}
	}
	return waiting
}

// doubtful reports whether the owner may be gone, or wants its dependents gone.
func (g *graph) doubtful(ref owner) bool {
	known := g.objects[ref.uid]
	return known == nil || known.waits()
}

// inDoubt returns the objects that have an owner who may be gone.
func (g *graph) inDoubt() []types.UID {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var all []types.UID
	for uid, o := range g.objects {
		if slices.ContainsFunc(o.owners, g.doubtful) {
			all = append(all, uid)
		}
	}
	return all
}

// waits reports whether the object will go once its dependents have.
func (o *object) waits() bool { return o.deleting && o.foreground }

func (g *graph) get(uid types.UID) *object {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.objects[uid]
}

// wasDeleted reports whether the object was seen to go.
func (g *graph) wasDeleted(uid types.UID) bool {
	_, gone := g.gone.Get(uid)
	return gone
}

// dependentsOf returns the objects that name uid as an owner.
func (g *graph) dependentsOf(uid types.UID) []*object {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var all []*object
	for _, o := range g.dependents[uid] {
		all = append(all, o)
	}
	return all
}

// uids returns the objects of one kind.
func (g *graph) uids(kind schema.GroupVersionResource) []types.UID {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var all []types.UID
	for uid, o := range g.objects {
		if o.kind == kind {
			all = append(all, uid)
		}
	}
	return all
}

func (o *object) ref(uid types.UID) (owner, bool) {
	for _, ref := range o.owners {
		if ref.uid == uid {
			return ref, true
		}
	}
	return owner{}, false
}
