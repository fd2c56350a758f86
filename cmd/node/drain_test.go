package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/kube"
)

// TestDrainWaits: a node is drained once its agent knows, nothing is announced, and its
// connections have been counted and have ended.
func TestDrainWaits(t *testing.T) {
	may := func(status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: announce.ConditionMay, Status: status}
	}
	keeps := func(status metav1.ConditionStatus, message string) metav1.Condition {
		return metav1.Condition{Type: announce.ConditionKeeps, Status: status, Message: message}
	}
	for _, c := range []struct {
		name       string
		announced  bool
		conditions []metav1.Condition // nil: there is no state
		late       bool
		want       string
	}{
		{"announces", true, []metav1.Condition{may(metav1.ConditionFalse)}, false, "still announces 1 Services"},
		{"the agent doesn't know yet", false, []metav1.Condition{may(metav1.ConditionTrue)}, false, "has an agent that doesn't say yet that it knows"},
		{"the agent has said nothing yet", false, nil, false, "has an agent that doesn't say yet that it knows"},
		{"there is no agent", false, nil, true, ""},
		{"counting", false, []metav1.Condition{may(metav1.ConditionFalse), keeps(metav1.ConditionUnknown, "being counted")}, true, "announces nothing, but being counted"},
		{"connections", false, []metav1.Condition{may(metav1.ConditionFalse), keeps(metav1.ConditionTrue, "3 connections")}, true, "announces nothing, but 3 connections"},
		{"done", false, []metav1.Condition{may(metav1.ConditionFalse)}, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			metallb := metallbOf(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				var answer any
				switch {
				case strings.Contains(r.URL.Path, "configurationstates"):
					if c.conditions == nil {
						http.Error(w, `{"kind":"Status","apiVersion":"v1","reason":"NotFound","code":404}`, http.StatusNotFound)
						return
					}
					answer = v1beta1.ConfigurationState{Status: v1beta1.ConfigurationStatus{Conditions: c.conditions}}
				case strings.Contains(r.URL.Path, "servicel2statuses") && c.announced:
					answer = metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "l2-n1.x"}}}}
				default:
					answer = metav1.PartialObjectMetadataList{}
				}
				if err := json.NewEncoder(w).Encode(answer); err != nil {
					t.Error(err)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			got, err := (&drain{node: "n1", namespace: v1beta1.DefaultNamespace, metallb: metallb}).look(ctx, c.late)
			if err != nil || got != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// metallbOf is a client of an API that answers so.
func metallbOf(t *testing.T, answer http.HandlerFunc) *kube.MetalLB {
	t.Helper()
	api := httptest.NewServer(answer)
	t.Cleanup(api.Close)
	metallb, err := kube.NewMetalLB(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	return metallb
}

// late is a context whose deadline is over, which it says itself a moment later.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// TestDrainTimeout: when the time is over, the error says what the node still has, whatever
// the client says of the context.
func TestDrainTimeout(t *testing.T) {
	metallb := metallbOf(t, func(w http.ResponseWriter, _ *http.Request) {
		answer := metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "l2-n1.x"}}}}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := (&drain{node: "n1", namespace: v1beta1.DefaultNamespace, metallb: metallb, out: io.Discard}).await(late{ctx})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestKeptIsShown: what a node keeps of addresses that others announce is in its status.
func TestKeptIsShown(t *testing.T) {
	var out strings.Builder
	report := announce.Report{Uncounted: 2, Kept: map[netip.Addr]int{netip.MustParseAddr("192.0.2.2"): 3, netip.MustParseAddr("192.0.2.1"): 5}}
	if err := printReport(report, &out); err != nil {
		t.Fatal(err)
	}
	const want = `connections that go on by way of this node, of an address that another one announces now: 5 to 192.0.2.1
connections that go on by way of this node, of an address that another one announces now: 3 to 192.0.2.2
addresses that this node gives up, and whose connections are being counted: 2
`
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("got\n%s\nwant at the end\n%s", out.String(), want)
	}
}
