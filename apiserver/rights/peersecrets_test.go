package rights

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestPeerSecrets: a name is looked up unless it was found a moment ago; an error
// is no permission.
func TestPeerSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists int
		var names []string
		var broken error
		p := &PeerSecrets{List: func(_ context.Context, namespace string) ([]string, error) {
			lists++
			if namespace != announceNamespace {
				t.Errorf("listed %s", namespace)
			}
			return names, broken
		}}
		check := func(when, name string, want bool, wantLists int, wantErr error) {
			t.Helper()
			got, err := p.refer(t.Context(), name)
			if got != want || lists != wantLists || !errors.Is(err, wantErr) {
				t.Errorf("%s: %v after %d lists, %v; want %v after %d, %v", when, got, lists, err, want, wantLists, wantErr)
			}
		}
		check("without BGPPeers", "a", false, 1, nil)
		names = []string{"a"}
		check("at once when there is one", "a", true, 2, nil)
		check("again", "a", true, 2, nil)
		check("another", "b", false, 3, nil)
		names, broken = nil, errors.New("no quorum")
		check("found a moment ago", "a", true, 3, nil)
		check("not found, and the list fails", "b", false, 4, broken)
		time.Sleep(referredFor)
		check("long ago, and the list fails", "a", false, 5, broken)
		broken = nil
		check("no BGPPeer any more", "a", false, 6, nil)
	})
}
