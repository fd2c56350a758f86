package latency

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestRecent: changes are remembered with when they were made, heard of and in force; not
// those of the start, nor more than there is room for.
func TestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := types.NamespacedName{Namespace: "default", Name: "web"}
		slice := func(made time.Time) *discoveryv1.EndpointSlice {
			return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
				Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: made.Format(time.RFC3339Nano)},
			}}
		}
		c := New("x")
		c.Service(web)
		c.Taken()
		c.SyncEnded(true, nil)
		if got := c.Recent(); len(got) != 0 {
			t.Errorf("the start is remembered: %v", got)
		}
		made := time.Now()
		time.Sleep(time.Second)
		c.Slice(slice(made))
		c.Taken()
		time.Sleep(time.Second)
		c.SyncEnded(false, nil) // which is tried again
		c.Service(web)
		c.Taken()
		time.Sleep(time.Second)
		c.SyncEnded(true, nil)
		got := c.Recent()
		if len(got) != 2 || got[0].Service != web || !got[0].Made.Equal(made) || got[0].Heard.Sub(made) != time.Second || got[0].InForce.Sub(made) != 3*time.Second || !got[1].Made.IsZero() {
			t.Fatalf("remembered %+v", got)
		}
		for range 3 * mostRecent {
			c.Service(web)
			c.Taken()
			c.SyncEnded(true, nil)
		}
		for range 3 * mostRecent {
			c.Service(web)
		}
		if got := c.Recent(); len(got) > mostRecent || len(got) < mostRecent/2 || len(c.recent.fresh) > mostRecent {
			t.Errorf("%d are remembered, and %d wait", len(got), len(c.recent.fresh))
		}
	})
}
