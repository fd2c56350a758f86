package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/fairway-net/fairway/ingress/model"
)

// unserved are the ports that could not be opened, by the name of the socket, and why.
type unserved struct {
	mu      sync.Mutex
	reasons map[string]string
	changed chan struct{} // has a value once they are others
}

func newUnserved() *unserved { return &unserved{changed: make(chan struct{}, 1)} }

// set notes what could not be opened, and reports whether it is something else than
// before.
func (u *unserved) set(reasons map[string]string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if maps.Equal(u.reasons, reasons) {
		return false
	}
	u.reasons = reasons
	select {
	case u.changed <- struct{}{}:
	default:
	}
	return true
}

// text is what is unserved as JSON; "" if all is served.
func (u *unserved) text() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return unservedText(u.reasons)
}

func unservedText(reasons map[string]string) string {
	if len(reasons) == 0 {
		return ""
	}
	text, err := json.Marshal(reasons)
	if err != nil {
		return "" // strings can always be written
	}
	return string(text)
}

func (u *unserved) ServeHTTP(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, u.text()) }

// unservedOf finds the sockets that an error of applying a table is about.
func unservedOf(t *model.Table, err error) map[string]string {
	if err == nil {
		return nil
	}
	out := map[string]string{}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		for _, s := range t.Sockets {
			if why, found := strings.CutPrefix(line, "serve "+s.Name+": "); found {
				out[s.Name] = why
			}
		}
	}
	return out
}

// text asks all processes of Gateways what they could not open.
func (s *separate) unservedText() string {
	all := map[string]string{}
	for _, c := range s.all() {
		text, err := c.ask("/unserved")
		if err != nil || len(text) == 0 {
			continue // it is on its way, or serves all
		}
		part := map[string]string{}
		if json.Unmarshal(text, &part) == nil {
			maps.Copy(all, part)
		}
	}
	return unservedText(all)
}
