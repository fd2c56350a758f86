package kube

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStreamPatience: a list that streams in is asked for again after a while,
// each time after a longer one; a watch lasts as long as it likes.
func TestStreamPatience(t *testing.T) {
	initial, long := true, int64(500)
	var p streamPatience
	ask := func(stream bool) int64 {
		o := &metav1.ListOptions{TimeoutSeconds: &long}
		if stream {
			o.SendInitialEvents = &initial
		}
		p.limit(o)
		return *o.TimeoutSeconds
	}
	for i, want := range []int64{20, 40, 80, 160, 320, 500} {
		if got := ask(true); got != want {
			t.Errorf("attempt %d lasts %d s, want %d", i, got, want)
		}
	}
	if got := ask(false); got != long {
		t.Errorf("a watch lasts %d s, want %d", got, long)
	}
	if got := ask(true); got != 20 {
		t.Errorf("the next list lasts %d s, want 20", got)
	}
	if long != 500 {
		t.Error("the caller's limit was changed")
	}
}
