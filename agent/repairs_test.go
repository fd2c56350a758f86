package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRepairsAreOneMessage: what one command removed is said once, in the log and
// as an Event; what is removed later, again.
func TestRepairsAreOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		e := &events{queue: make(chan notice, 10)}
		r := &repairs{log: slog.New(slog.NewTextHandler(&said, nil)), events: e}
		r.done("the Services of nftables mode")
		r.done("the Services of nftables mode")
		time.Sleep(repairsGather / 2)
		r.done("what leads DNS questions to this node")
		time.Sleep(repairsGather)
		synctest.Wait()
		if n := strings.Count(said.String(), "\n"); n != 1 || len(e.queue) != 1 {
			t.Fatalf("%d messages, %d Events:\n%s", n, len(e.queue), said.String())
		}
		const want = "compared and repaired: the Services of nftables mode, what leads DNS questions to this node"
		if n := <-e.queue; n.reason != reasonRepaired || !strings.HasSuffix(n.message, want) {
			t.Errorf("the Event is %s: %s", n.reason, n.message)
		}
		r.done("the Services of nftables mode")
		time.Sleep(2 * repairsGather)
		synctest.Wait()
		if len(e.queue) != 1 {
			t.Errorf("%d Events of what was removed later", len(e.queue))
		}
	})
}
