package haproxy

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/internal/keptfile"
)

// leaving are servers that get no requests any more and are deleted once they have
// none, by backend.
type leaving map[int]map[string]bool

// change has the haproxy that runs serve another plan. What is new is there before
// anything refers to it, and what goes is referred to no more before it goes:
// programs, servers, certificates, entries of maps; then entries and servers that
// nobody asks for.
func (e *Engine) change(next *plan) error {
	if err := e.writePrograms(next.programs); err != nil {
		return err
	}
	var commands batch
	e.addServers(next, &commands)
	if e.hasNewCertificates(next) {
		if err := e.process.control.send(commands); err != nil {
			return err
		}
		if err := e.changeCertificates(next); err != nil {
			return err
		}
		commands = nil
	}
	for _, file := range slices.Sorted(maps.Keys(next.entries)) {
		e.changeMap(file, e.plan.entries[file], next.entries[file], &commands)
	}
	e.removeServers(next, &commands)
	return e.process.control.send(commands)
}

func (e *Engine) changeServers(next *plan) error {
	var commands batch
	e.addServers(next, &commands)
	e.removeServers(next, &commands)
	return e.process.control.send(commands)
}

// addServers adds those that aren't there, and changes weights.
func (e *Engine) addServers(next *plan, to *batch) {
	for number, list := range next.backends {
		before := e.plan.backends[number]
		for name, s := range list {
			if was, given := before[name]; !given || was != s {
				e.addServer(number, name, s, given, to)
			}
		}
	}
}

func (e *Engine) addServer(number int, name string, s server, given bool, to *batch) {
	at := e.slots.name(number) + "/" + name
	if given || e.leaving[number][name] {
		delete(e.leaving[number], name)
		to.add("set server %s weight %d", at, s.weight)
		to.add("set server %s state ready", at)
		return
	}
	to.add("add server %s/%s", e.slots.name(number), s.line(name))
	to.add("enable server %s", at)
}

// removeServers gives no requests any more to those that nobody asks for.
func (e *Engine) removeServers(next *plan, to *batch) {
	for number, list := range e.plan.backends {
		for name := range list {
			if _, given := next.backends[number][name]; given {
				continue
			}
			to.add("set server %s/%s state maint", e.slots.name(number), name)
			if e.leaving[number] == nil {
				e.leaving[number] = map[string]bool{}
			}
			e.leaving[number][name] = true
		}
	}
	e.release(next)
}

// release frees the backends that the plan doesn't have and that have no server.
func (e *Engine) release(next *plan) {
	for number, n := range e.slots.owner {
		if _, used := next.backends[number]; !used && n.pool != "" && len(e.leaving[number]) == 0 {
			e.slots.release(number)
		}
	}
}

// forget frees all backends that a plan doesn't have: haproxy starts anew.
func (s *slots) forget(next *plan) {
	for number, n := range s.owner {
		if _, used := next.backends[number]; !used && n.pool != "" {
			s.release(number)
		}
	}
}

// changeMap changes the entries that differ.
func (e *Engine) changeMap(file string, before, after map[string]string, to *batch) {
	path := filepath.Join(e.process.folder, file)
	for key, value := range sorted(after) {
		was, given := before[key]
		switch {
		case !given:
			to.add("add map %s %s %s", path, word(key), value)
		case was != value:
			to.add("set map %s %s %s", path, word(key), value)
		}
	}
	for key := range before {
		if _, given := after[key]; !given {
			to.add("del map %s %s", path, word(key))
		}
	}
}

// hasNewCertificates reports whether some aren't as haproxy has them.
func (e *Engine) hasNewCertificates(next *plan) bool {
	for file, text := range next.pems {
		if e.plan.pems[file] != text {
			return true
		}
	}
	return false
}

// changeCertificates replaces those whose file is there already.
func (e *Engine) changeCertificates(next *plan) error {
	c := e.process.control
	for file, text := range sorted(next.pems) {
		if e.plan.pems[file] == text {
			continue
		}
		path := filepath.Join(e.process.folder, file)
		if err := keptfile.Write(path, []byte(text), 0o600); err != nil {
			return err
		}
		if err := c.do("set ssl cert "+path+" <<\n"+text, "Transaction created", "Transaction updated"); err != nil {
			return err
		}
		if err := c.do("commit ssl cert "+path, "Success"); err != nil {
			return err
		}
	}
	return nil
}

// sweepInterval is how often servers that leave are looked at.
const sweepInterval = time.Second

// sweep deletes servers that have left, until the engine is closed.
func (e *Engine) sweep() {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-ticker.C:
		}
		e.mu.Lock()
		if e.process != nil && !e.closed {
			e.deleteServers()
		}
		e.mu.Unlock()
	}
}

func (e *Engine) deleteServers() {
	type one struct {
		number int
		name   string
	}
	var servers []one
	var commands batch
	for number, list := range e.leaving {
		for name := range list {
			servers = append(servers, one{number, name})
			commands.add("del server %s/%s", e.slots.name(number), name)
		}
	}
	answers, err := e.process.control.answers(commands)
	if err != nil {
		e.log.Warn("servers that have left are not deleted yet", "error", err)
		return
	}
	for i, answer := range answers {
		// it is refused as long as the server has connections
		if s := servers[i]; strings.Contains(answer, "Server deleted") {
			delete(e.leaving[s.number], s.name)
			if len(e.leaving[s.number]) == 0 {
				delete(e.leaving, s.number)
			}
		}
	}
	e.release(e.plan)
	e.deletePrograms()
}

// deletePrograms removes those that nobody can ask for any more. Replaced processes
// may ask for what was served before.
func (e *Engine) deletePrograms() {
	if len(e.replaced) > 0 {
		return
	}
	folder := filepath.Join(e.folder, "programs")
	list, err := os.ReadDir(folder)
	if err != nil || len(list) < 2*len(e.plan.programs)+100 {
		return
	}
	for _, f := range list {
		if name := f.Name(); e.plan.programs[name] == "" && name != "trusted" {
			_ = os.Remove(filepath.Join(folder, name)) // the next time, then
		}
	}
}

// lastEndpoints has requests that still run find new endpoints once the engine is closed.
func (e *Engine) lastEndpoints(table *model.Table) {
	if e.process == nil || e.table == nil || !e.sameValues(table.Pools) {
		return
	}
	next := e.withEndpoints(table)
	if e.changeServers(next) == nil { // it may have ended
		e.table, e.plan = &model.Table{Sockets: e.table.Sockets, Pools: table.Pools}, next
	}
}
