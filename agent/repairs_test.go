package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairway-net/fairway/kube/notices"
)

// TestRepairsAreOneMessage: what one command removed is said once, in the log and
// as an Event; what is removed later, again.
func TestRepairsAreOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		e := &events{Writer: notices.New(nil, "node", slog.New(slog.DiscardHandler))}
		r := &repairs{log: slog.New(slog.NewTextHandler(&said, nil)), events: e}
		r.done("the Services of nftables mode")
		r.done("the Services of nftables mode")
		time.Sleep(repairsGather / 2)
		r.done("what leads DNS questions to this node")
		time.Sleep(repairsGather)
		synctest.Wait()
		told := e.Drain()
		if n := strings.Count(said.String(), "\n"); n != 1 || len(told) != 1 {
			t.Fatalf("%d messages, %d Events:\n%s", n, len(told), said.String())
		}
		const want = "compared and repaired: the Services of nftables mode, what leads DNS questions to this node"
		if n := told[0]; n.Reason != reasonRepaired || !strings.HasSuffix(n.Message, want) {
			t.Errorf("the Event is %s: %s", n.Reason, n.Message)
		}
		r.done("the Services of nftables mode")
		time.Sleep(2 * repairsGather)
		synctest.Wait()
		if told := e.Drain(); len(told) != 1 {
			t.Errorf("%d Events of what was removed later", len(told))
		}
	})
}
