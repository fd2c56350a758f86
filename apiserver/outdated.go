package apiserver

import (
	"slices"
	"sync"
	"time"
)

const (
	// outdatedFor is how long it is remembered that a client came with a credential that
	// only the old authority vouches for.
	outdatedFor = 15 * time.Minute
	// mostOutdated is how many of them are named.
	mostOutdated = 20
)

// outdated are clients whose credential is of an authority that is being replaced, and
// that hold only until the replacement is finished.
type outdated struct {
	mu   sync.Mutex
	seen map[string]map[string]time.Time // by authority and user
}

// see notes that a user came. Of many it forgets some: there is one then in any case.
func (o *outdated) see(authority, user string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil {
		o.seen = map[string]map[string]time.Time{}
	}
	users := o.seen[authority]
	if users == nil {
		users = map[string]time.Time{}
		o.seen[authority] = users
	}
	if _, known := users[user]; known || len(users) < mostKnown {
		users[user] = time.Now()
	}
}

// recent are users that came lately, by authority.
func (o *outdated) recent(now time.Time) map[string][]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := map[string][]string{}
	for authority, users := range o.seen {
		var names []string
		for user, at := range users {
			if now.Sub(at) > outdatedFor {
				delete(users, user)
				continue
			}
			names = append(names, user)
		}
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		out[authority] = names[:min(len(names), mostOutdated)]
	}
	return out
}
