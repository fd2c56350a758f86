package customresources

import (
	"fmt"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// groups keeps the API groups of established definitions in the list at /apis.
// Clients that know aggregated discovery (KEP-3352) read them from the manager
// that both servers share.
type groups struct {
	root   discovery.GroupManager
	lister listers.CustomResourceDefinitionLister

	mu     sync.Mutex
	listed map[string]bool
}

func newGroups(root discovery.GroupManager, definitions informers.CustomResourceDefinitionInformer) (*groups, error) {
	g := &groups{root: root, lister: definitions.Lister(), listed: map[string]bool{}}
	update := func(obj any) {
		if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
			g.update(crd.Spec.Group)
		}
	}
	_, err := definitions.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    update,
		UpdateFunc: func(_, obj any) { update(obj) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			update(obj)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch CustomResourceDefinitions: %w", err)
	}
	return g, nil
}

// start lists the group of the definitions themselves.
func (g *groups) start(genericapiserver.PostStartHookContext) error {
	g.root.AddGroup(apiGroup(apiextensions.GroupName, []string{apiextensionsv1.SchemeGroupVersion.Version}))
	return nil
}

// update lists a group with the versions that are served now, or takes it off.
// A group that the main server has kinds of its own in stays as it is.
func (g *groups) update(group string) {
	all, err := g.lister.List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "list CustomResourceDefinitions", "group", group)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	versions := servedVersions(all, group)
	switch {
	case len(versions) > 0:
		g.listed[group] = true
		g.root.AddGroup(apiGroup(group, versions))
	case g.listed[group]:
		delete(g.listed, group)
		g.root.RemoveGroup(group)
	}
}

// servedVersions returns the versions in which any established definition of
// the group is served, the most stable first, each once.
func servedVersions(all []*apiextensionsv1.CustomResourceDefinition, group string) []string {
	var versions []string
	for _, crd := range all {
		if crd.Spec.Group != group || !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if v.Served && !slices.Contains(versions, v.Name) {
				versions = append(versions, v.Name)
			}
		}
	}
	slices.SortFunc(versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	return versions
}

func apiGroup(name string, versions []string) metav1.APIGroup {
	group := metav1.APIGroup{Name: name}
	for _, v := range versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}
