package haproxy

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
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
	if err := e.addServers(next); err != nil {
		return err
	}
	if err := e.changeCertificates(next); err != nil {
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(next.entries)) {
		if err := e.changeMap(file, e.plan.entries[file], next.entries[file]); err != nil {
			return err
		}
	}
	return e.removeServers(next)
}

func (e *Engine) changeServers(next *plan) error {
	if err := e.addServers(next); err != nil {
		return err
	}
	return e.removeServers(next)
}

// addServers adds those that aren't there, and changes weights.
func (e *Engine) addServers(next *plan) error {
	for number, list := range next.backends {
		before := e.plan.backends[number]
		for name, s := range list {
			was, given := before[name]
			if given && was == s {
				continue
			}
			if err := e.addServer(number, name, s, given); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Engine) addServer(number int, name string, s server, given bool) error {
	at := fmt.Sprintf("b%d/%s", number, name)
	c := e.process.control
	if given || e.leaving[number][name] {
		delete(e.leaving[number], name)
		return c.each([]string{fmt.Sprintf("set server %s weight %d", at, s.weight), "set server " + at + " state ready"})
	}
	if err := c.do("add server "+fmt.Sprintf("b%d/", number)+s.line(name), "New server registered"); err != nil {
		return err
	}
	return c.do("enable server " + at)
}

// removeServers gives no requests any more to those that nobody asks for.
func (e *Engine) removeServers(next *plan) error {
	var commands []string
	for number, list := range e.plan.backends {
		for name := range list {
			if _, given := next.backends[number][name]; given {
				continue
			}
			commands = append(commands, fmt.Sprintf("set server b%d/%s state maint", number, name))
			if e.leaving[number] == nil {
				e.leaving[number] = map[string]bool{}
			}
			e.leaving[number][name] = true
		}
	}
	e.release(next)
	return e.process.control.each(commands)
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
func (e *Engine) changeMap(file string, before, after map[string]string) error {
	path := filepath.Join(e.process.folder, file)
	var added, changed, gone []string
	for key, value := range after {
		was, given := before[key]
		switch {
		case !given:
			added = append(added, key+" "+value)
		case was != value:
			changed = append(changed, "set map "+path+" "+word(key)+" "+value)
		}
	}
	for key := range before {
		if _, given := after[key]; !given {
			gone = append(gone, "del map "+path+" "+word(key))
		}
	}
	slices.Sort(added)
	if err := e.process.control.lines("add map "+path, added); err != nil {
		return err
	}
	if err := e.process.control.each(changed); err != nil {
		return err
	}
	return e.process.control.each(gone)
}

// changeCertificates replaces those whose file is there already.
func (e *Engine) changeCertificates(next *plan) error {
	c := e.process.control
	for file, text := range sorted(next.pems) {
		if e.plan.pems[file] == text {
			continue
		}
		path := filepath.Join(e.process.folder, file)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return fmt.Errorf("write files for haproxy: %w", err)
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
	for number, list := range e.leaving {
		for name := range list {
			// it is refused as long as the server has connections
			if e.process.control.do("del server b"+strconv.Itoa(number)+"/"+name, "Server deleted") == nil {
				delete(list, name)
			}
		}
		if len(list) == 0 {
			delete(e.leaving, number)
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
