package dns

import "slices"

// hold keeps what a Service says from being answered until it is forwarded. An
// address that the Service doesn't have any more stops being answered at once;
// otherwise what was said before goes on.
func (x *Index) hold(svc *service, next *spec) {
	if live := svc.live; live != nil && (live.kind != clusterIP || !slices.Equal(live.addresses, next.addresses)) {
		x.publish(svc, nil)
	}
	if svc.live != nil && svc.live.equal(next) {
		svc.next = nil
		return
	}
	if svc.next == nil {
		x.pending = append(x.pending, svc)
	}
	svc.next = next
	svc.since = x.clock + 1
}

// Mark tells where the changes stand: whoever takes a table from the same
// objects next passes the mark to Applied when the table is in force.
func (x *Index) Mark() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.clock++
	return x.clock
}

// Applied tells that this node forwards what was known at a mark, and so that
// the records are complete.
func (x *Index) Applied(mark uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.synced = true
	kept := x.pending[:0]
	for _, svc := range x.pending {
		switch {
		case svc.next == nil: // deleted meanwhile
		case svc.since > mark:
			kept = append(kept, svc)
		default:
			next := svc.next
			svc.next = nil
			x.publish(svc, next)
		}
	}
	clear(x.pending[len(kept):])
	x.pending = kept
}
