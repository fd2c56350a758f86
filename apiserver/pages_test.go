package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"
)

// TestPagesAreReadOnce: the pages of a list hold what a whole list holds, though objects
// come and go meanwhile, and the watch cache reads each object a few times, not once for
// each page before it.
func TestPagesAreReadOnce(t *testing.T) {
	const objects, limit = 1200, 10
	c := administrator(t, sharedServer(t))
	ctx := within(t)
	fillConfigMaps(ctx, t, c, objects)
	whole, err := c.CoreV1().ConfigMaps("pages").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := fetched(t, "configmaps")
	got := pages(ctx, t, c, metav1.ListOptions{Limit: limit}, func(page int) {
		// Neither is in pages of a list that has begun.
		if err := c.CoreV1().ConfigMaps("pages").Delete(ctx, fmt.Sprintf("c%04d", objects-1-page), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		makeConfigMap(ctx, t, c, fmt.Sprintf("c%04d-new", page*limit))
	})
	if want := names(whole.Items); !slices.Equal(got, want) {
		t.Errorf("pages have %d objects, the whole list %d: %v", len(got), len(want), got)
	}
	// The first page, and one reading of what comes after it.
	if read := fetched(t, "configmaps") - before; read > 3*objects {
		t.Errorf("%d objects were read for a list of %d", read, objects)
	}
}

// TestPagesSelect: pages of a selection have its objects alone, and aren't mixed up with
// those of another one.
func TestPagesSelect(t *testing.T) {
	const objects = 200
	c := administrator(t, sharedServer(t))
	ctx := within(t)
	fillConfigMaps(ctx, t, c, objects)
	for _, selector := range []string{"odd=true", "odd=false"} {
		whole, err := c.CoreV1().ConfigMaps("pages").List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			t.Fatal(err)
		}
		got := pages(ctx, t, c, metav1.ListOptions{Limit: 7, LabelSelector: selector}, func(int) {})
		if want := names(whole.Items); !slices.Equal(got, want) || len(got) != objects/2 {
			t.Errorf("pages of %s have %d objects, the whole list %d: %v", selector, len(got), len(want), got)
		}
	}
}

// pages lists page by page, calls between after each, and checks how many are said to remain.
func pages(ctx context.Context, t *testing.T, c kubernetes.Interface, o metav1.ListOptions, between func(page int)) []string {
	t.Helper()
	var all []string
	var remaining []int
	for page := 0; ; page++ {
		list, err := c.CoreV1().ConfigMaps("pages").List(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, names(list.Items)...)
		if list.RemainingItemCount != nil {
			remaining = append(remaining, len(all)+int(*list.RemainingItemCount))
		}
		if o.Continue = list.Continue; o.Continue == "" {
			break
		}
		between(page)
	}
	for _, n := range remaining {
		if n != len(all) {
			t.Errorf("a page says that there are %d objects in all, and there are %d", n, len(all))
		}
	}
	if o.LabelSelector == "" && len(remaining) < len(all)/int(o.Limit)-1 {
		t.Errorf("%d pages say how many objects remain", len(remaining))
	}
	return all
}

func fillConfigMaps(ctx context.Context, t *testing.T, c kubernetes.Interface, n int) {
	t.Helper()
	_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "pages"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		makeConfigMap(ctx, t, c, fmt.Sprintf("c%04d", i), "odd", strconv.FormatBool(i%2 == 1))
	}
}

func makeConfigMap(ctx context.Context, t *testing.T, c kubernetes.Interface, name string, label ...string) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if len(label) == 2 {
		object.Labels = map[string]string{label[0]: label[1]}
	}
	if _, err := c.CoreV1().ConfigMaps("pages").Create(ctx, object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func names(list []corev1.ConfigMap) []string {
	all := make([]string, len(list))
	for i, o := range list {
		all[i] = o.Name
	}
	return all
}

// fetched is how many objects of a resource lists have read from the watch cache.
func fetched(t *testing.T, resource string) int {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var n float64
	for _, family := range families {
		if family.GetName() != "apiserver_cache_list_fetched_objects_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "resource" && l.GetValue() == resource {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return int(n)
}
