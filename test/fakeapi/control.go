package fakeapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Do carries out one line of a test's script and tells what there is to tell:
//
//	apply JSON                 make or replace an object
//	delete RESOURCE NS/NAME    remove one ("/NAME" if it has no namespace)
//	touch                      something else in the cluster changes
//	expire                     forget the history
//	bookmark|end|cut|half|gone have every open watch do that
//	refuse N SECONDS           hold back the next N requests (429, Retry-After)
//	page N, slow MS, stale N   of lists: see behaviour
//	token NAME                 from now on this is the one that is good
//	watchlist|json|gonebystatus|away|mute on|off
//	seen                       what clients did, as JSON
//	events                     the Events that clients wrote, as JSON
func (s *Server) Do(line string) (string, error) {
	verb, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	switch verb {
	case "apply":
		return "", s.Apply([]byte(rest))
	case "delete":
		if len(words) != 2 {
			break
		}
		namespace, name, _ := strings.Cut(words[1], "/")
		return "", s.Delete(words[0], namespace, name)
	case "seen":
		text, err := json.Marshal(s.Seen())
		return string(text), err
	case "events":
		text, err := json.Marshal(s.Objects("events"))
		return string(text), err
	case "bookmark", "end", "cut", "half", "gone":
		s.order(order(verb))
		return "", nil
	default:
		return "", s.adjust(verb, words)
	}
	return "", fmt.Errorf("%q: what?", line)
}

// order has every open watch do something, and waits until it has.
func (s *Server) order(o order) {
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.watches))
	s.mu.Unlock()
	for _, st := range open {
		t := task{o, make(chan struct{})}
		select {
		case st.orders <- t:
			<-t.done
		case <-st.ended:
		}
	}
}

func (s *Server) adjust(verb string, words []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switches := map[string]*bool{
		"watchlist": &s.behaviour.WatchList, "json": &s.behaviour.JSON, "gonebystatus": &s.behaviour.GoneByStatus, "away": &s.behaviour.Away,
		"mute": &s.behaviour.Mute,
	}
	if which := switches[verb]; which != nil && len(words) == 1 {
		*which = words[0] == "on"
		s.wake()
		return nil
	}
	if verb == "token" && len(words) == 1 {
		s.Token = words[0]
		return nil
	}
	var numbers []int
	for _, w := range words {
		n, err := strconv.Atoi(w)
		if err != nil {
			return fmt.Errorf("%s: %w", verb, err)
		}
		numbers = append(numbers, n)
	}
	switch {
	case verb == "touch":
		s.version++
		s.wake()
	case verb == "expire":
		s.oldest = s.version
	case verb == "refuse" && len(numbers) == 2:
		s.behaviour.Refuse, s.behaviour.RetryAfter = numbers[0], numbers[1]
	case verb == "page" && len(numbers) == 1:
		s.behaviour.Page = numbers[0]
	case verb == "slow" && len(numbers) == 1:
		s.behaviour.Slow = time.Duration(numbers[0]) * time.Millisecond
	case verb == "stale" && len(numbers) == 1:
		s.behaviour.Stale = numbers[0]
	default:
		return fmt.Errorf("%s %q: what?", verb, words)
	}
	return nil
}
