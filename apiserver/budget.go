package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// budget is how many bytes a user may have stored at once, and how many more an hour.
type budget struct{ burst, hourly float64 }

// Events last for an hour, so that one user has at most twice eventBudget of them. With
// the rest a user takes a day to fill a store of 8 GiB, whose growth is watched.
var (
	eventBudget = budget{burst: 64 << 20, hourly: 64 << 20}
	writeBudget = budget{burst: 512 << 20, hourly: 256 << 20}
)

// spending knows how many bytes users had stored. What counts is what the store gets: a
// patch of a few bytes writes the whole object anew. ServiceAccounts of a namespace are
// one user here, since who may make one may make many.
type spending struct {
	events, others budget
	now            func() time.Time

	mu       sync.Mutex
	accounts map[accountKey]*account
}

type accountKey struct {
	user   string
	events bool
}

// account is what is left of a budget.
type account struct {
	left float64
	at   time.Time
	said bool // in the log, that nothing is left
}

func newSpending(events, others budget) *spending {
	return &spending{events: events, others: others, now: time.Now, accounts: map[accountKey]*account{}}
}

// charge is told what a request stores. It doesn't refuse it: what a request will store
// isn't known before.
func (s *spending) charge(ctx context.Context, resource schema.GroupResource, bytes int) {
	who, ok := request.UserFrom(ctx)
	if !ok || slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.account(who, isEvents(resource.Group, resource.Resource)).left -= float64(bytes)
}

// refuses says why a request of a user may not write; "" if it may.
func (s *spending) refuses(who user.Info, req *http.Request) string {
	if isSafe(req.Method) || req.Method == http.MethodDelete { // deleting makes room
		return ""
	}
	info, ok := request.RequestInfoFrom(req.Context())
	events := ok && isEvents(info.APIGroup, info.Resource)
	of, what := s.budget(events)
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.account(who, events)
	if a.left > 0 {
		a.said = false
		return ""
	}
	wait := time.Duration((1 - a.left) / of.hourly * float64(time.Hour)).Round(time.Second)
	why := fmt.Sprintf("has written too much: %d MiB of %s at once and %d MiB an hour are for each user; there is room again in %v", int(of.burst)>>20, what, int(of.hourly)>>20, wait)
	if !a.said {
		a.said = true
		slog.Warn("a user's writes are refused", "user", who.GetName(), "reason", why)
	}
	return why
}

func (s *spending) budget(events bool) (of budget, what string) {
	if events {
		return s.events, "Events"
	}
	return s.others, "objects"
}

// account returns what a user has left now.
func (s *spending) account(who user.Info, events bool) *account {
	of, _ := s.budget(events)
	key, now := accountKey{payer(who), events}, s.now()
	a := s.accounts[key]
	if a == nil {
		if len(s.accounts) >= mostUsers {
			s.forget(now)
		}
		a = &account{left: of.burst, at: now}
		s.accounts[key] = a
	}
	a.refill(of, now)
	return a
}

// forget drops the half of the accounts that have spent the least: to forget those gives
// the least away.
func (s *spending) forget(now time.Time) {
	left := func(k accountKey) float64 {
		of, _ := s.budget(k.events)
		return s.accounts[k].refill(of, now) / of.burst
	}
	keys := slices.SortedFunc(maps.Keys(s.accounts), func(a, b accountKey) int { return cmp.Compare(left(b), left(a)) })
	for _, k := range keys[:(len(keys)+1)/2] {
		delete(s.accounts, k)
	}
}

func (a *account) refill(of budget, now time.Time) float64 {
	a.left = min(of.burst, a.left+of.hourly*now.Sub(a.at).Hours())
	a.at = now
	return a.left
}

// payer names who pays for what a user writes.
func payer(who user.Info) string {
	if namespace, _, err := serviceaccount.SplitUsername(who.GetName()); err == nil {
		return strings.TrimSuffix(serviceaccount.ServiceAccountUsernamePrefix, ":") + "s:" + namespace
	}
	return who.GetName()
}

func isEvents(group, resource string) bool {
	return resource == "events" && (group == "" || group == "events.k8s.io")
}
