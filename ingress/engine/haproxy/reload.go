package haproxy

import (
	"crypto/x509"
	_ "embed"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/internal/keptfile"
)

//go:embed fairway.lua
var program []byte

// structureOf is the configuration without what can be changed while haproxy runs.
func structureOf(p *plan, o *Options) string {
	s := &settings{folder: "", trusted: o.Trusted, proxyFrom: o.ProxyFrom, perClient: o.PerClient, files: numbers(p), slots: &slots{}}
	bare := *p
	bare.backends = nil
	var b strings.Builder
	b.WriteString(render(&bare, s))
	for _, one := range p.sockets {
		for _, l := range one.listener {
			fmt.Fprintln(&b, l.model.Mode, l.model.Hostname == "", l.lines)
		}
	}
	return b.String()
}

// numbers are those of the files of sockets, by address.
func numbers(p *plan) map[string]int {
	out := map[string]int{}
	for i, s := range p.sockets {
		out[s.model.Bind.String()] = i + 3
	}
	return out
}

// reload starts a haproxy that serves the plan, and has the one before end.
func (e *Engine) reload(table *model.Table, next *plan, structure string) error {
	e.slots.forget(next)
	e.slots.fill()
	started, err := e.start(next)
	if err != nil {
		return err
	}
	if e.process != nil {
		e.letInNoMore(next)
		e.retire(e.process)
	}
	e.process, e.table, e.plan, e.structure, e.leaving = started, table, next, structure, leaving{}
	return nil
}

// start writes all files of a new haproxy, has it check them, and runs it. Without a
// socket there is nothing to run.
func (e *Engine) start(next *plan) (*process, error) {
	if len(next.sockets) == 0 {
		return nil, nil
	}
	e.generation++
	folder := fmt.Sprintf("%s/%d", e.folder, e.generation)
	if err := e.write(folder, next); err != nil {
		return nil, err
	}
	var sockets []int
	defer func() {
		for _, fd := range sockets {
			_ = unix.Close(fd) // haproxy has it
		}
	}()
	for _, s := range next.sockets {
		fd, err := duplicate(e.listeners[s.model.Bind])
		if err != nil {
			return nil, fmt.Errorf("give %s to haproxy: %w", s.model.Name, err)
		}
		sockets = append(sockets, fd)
	}
	if err := check(e.program, folder, sockets, e.log); err != nil {
		return nil, err
	}
	p, err := start(e.program, folder, sockets, e.log)
	if err != nil {
		return nil, err
	}
	e.reloads++
	e.threads.Go(func() { e.watch(p) })
	return p, nil
}

// duplicate returns another number for a listening socket, which goes on as it is.
func duplicate(l *net.TCPListener) (int, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return -1, err
	}
	number, dupErr := -1, error(nil)
	if err := raw.Control(func(fd uintptr) { number, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return -1, err
	}
	return number, dupErr
}

// watch has a haproxy that ends unasked started again.
func (e *Engine) watch(p *process) {
	<-p.ended
	defer func() { _ = os.RemoveAll(p.folder) }() // the whole goes at the end in any case
	pause := 10 * time.Millisecond
	for !p.isHidden() {
		e.mu.Lock()
		if e.closed || e.process != p {
			e.mu.Unlock()
			return
		}
		e.log.Error("haproxy ended; starting it again", "state", p.state, "output", p.said.last())
		started, err := e.start(e.plan)
		if err == nil {
			e.process, e.leaving = started, leaving{}
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
		e.log.Error("haproxy could not be started; trying again", "error", err)
		select {
		case <-e.stop:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
	}
}

// letInNoMore has the haproxy that is replaced serve no more of those connections whose
// clients would now have to show another certificate.
func (e *Engine) letInNoMore(next *plan) {
	var commands batch
	for _, s := range e.plan.sockets {
		i := slices.IndexFunc(next.sockets, func(n *socket) bool { return n.model.Bind == s.model.Bind })
		if i < 0 || !s.model.TLS {
			continue
		}
		keys := e.plan.entries[s.id+"l.map"]
		list := asking(s, next.sockets[i], keys)
		for _, key := range list {
			verb := "set"
			if _, given := keys[key]; !given {
				verb = "add"
			}
			commands.add("%s map %s %s %s", verb, filepath.Join(e.process.folder, s.id+"l.map"), word(key), misdirected)
		}
		if len(list) > 0 { // so that no request takes the short way
			commands.add("clear map %s", filepath.Join(e.process.folder, s.id+"f.map"))
		}
	}
	if err := e.process.control.send(commands); err != nil {
		e.log.Warn("connections from before clients had to show other certificates may bring one more request", "error", err)
	}
}

// asking are the keys in the map of a socket's listeners, there already or not, for whose
// connections clients would have to show another certificate from now on.
func asking(before, now *socket, keys map[string]string) []string {
	list := map[string]struct{}{}
	note := func(key string) {
		name := key // also one that the asterisk stands for
		if key == "*" {
			name = ""
		}
		is, was := now.model.Listener(name), before.model.Listener(name)
		if is == nil || was == nil || was.Mode != model.HTTP || !asksMore(is.Clients, was.Clients) {
			return
		}
		if _, given := keys[key]; !given && (!before.named || strings.HasPrefix(key, "*")) {
			key, _ = hostKey(was.Hostname) // haproxy looks for no other one
		}
		list[key] = struct{}{}
	}
	for key := range keys {
		note(key)
	}
	for _, l := range now.listener {
		if key, ok := hostKey(l.model.Hostname); ok {
			note(key)
		}
	}
	return slices.Sorted(maps.Keys(list))
}

// asksMore reports whether somebody whom one validation has let in may be kept out by
// another one.
func asksMore(now, was *model.ClientValidation) bool {
	if now == nil || now.Optional {
		return false
	}
	return was == nil || was.Optional || slices.ContainsFunc(was.Authorities, func(c *x509.Certificate) bool { return !slices.ContainsFunc(now.Authorities, c.Equal) })
}

// retire has a haproxy end, at the latest when its time is over.
func (e *Engine) retire(p *process) {
	e.keepCount(p)
	p.leave(e.sockets())
	e.ended = nil
	e.replaced = slices.DeleteFunc(e.replaced, func(o *process) bool {
		select {
		case <-o.ended:
			return true
		default:
			return false
		}
	})
	e.replaced = append(e.replaced, p)
	e.threads.Go(func() {
		select {
		case <-p.ended:
		case <-time.After(e.options.Drain):
			p.kill()
		}
	})
}

// write writes all files of a haproxy.
func (e *Engine) write(folder string, p *plan) error {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return fmt.Errorf("write files for haproxy: %w", err)
	}
	if err := e.writePrograms(p.programs); err != nil {
		return err
	}
	for name, text := range e.files(folder, p) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write files for haproxy: %w", err)
		}
	}
	return os.Symlink(e.folder+"/programs", folder+"/programs")
}

// files are all those of a haproxy, by name.
func (e *Engine) files(folder string, p *plan) map[string]string {
	out := map[string]string{
		"fairway.lua": string(program),
		"haproxy.cfg": render(p, &settings{
			folder: folder, trusted: e.options.Trusted, proxyFrom: e.options.ProxyFrom, perClient: e.options.PerClient, logTo: e.logTo(), drain: e.options.Drain, files: numbers(p), slots: &e.slots,
		}),
	}
	for file, list := range p.entries {
		var b strings.Builder
		for key, value := range sorted(list) {
			b.WriteString(key + " " + value + "\n")
		}
		out[file] = b.String()
	}
	for _, s := range p.sockets {
		if s.model.TLS {
			out[s.id+".list"] = strings.Join(certificateList(s, model.HTTP), "\n") + "\n"
			out[s.id+"h.list"] = out[s.id+".list"]
			out[s.id+"t.list"] = strings.Join(certificateList(s, model.Terminate), "\n") + "\n"
		}
	}
	for _, list := range []map[string]string{p.pems, p.kept} {
		for file, text := range list {
			out[file] = text
		}
	}
	for _, name := range []string{"f.map", "p.map", "x.map"} {
		for _, s := range p.sockets {
			if _, given := out[s.id+name]; !given {
				out[s.id+name] = ""
			}
		}
	}
	return out
}

// writePrograms adds those that aren't there. Each is there as a whole or not at all.
func (e *Engine) writePrograms(programs map[string]string) error {
	folder := filepath.Join(e.folder, "programs")
	for name, text := range programs {
		path := filepath.Join(folder, name)
		if e.plan != nil && e.plan.programs[name] != "" {
			continue
		}
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := keptfile.Write(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	if len(e.options.Trusted) == 0 {
		return nil
	}
	w := &writer{}
	w.WriteString("return {")
	hexRanges(w, e.options.Trusted)
	w.WriteString("}\n")
	return keptfile.Write(filepath.Join(folder, "trusted"), []byte(w.String()), 0o600)
}
