package dns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"github.com/coredns/caddy"
)

// Server is a running DNS server.
type Server struct {
	instance *caddy.Instance
	loop     *loopGuard
	log      *slog.Logger
}

// ServerConfig says how to serve an index.
type ServerConfig struct {
	Index *Index
	// Corefile is the configuration's text; if it is empty, Path is read, now
	// and whenever the reload plugin looks for changes.
	Corefile string
	Path     string
	// Local are the addresses to listen at where Path says to bind others.
	Local map[netip.Addr]netip.Addr
	// Log takes CoreDNS' log too; not one that writes to package log's.
	Log *slog.Logger
}

// Start serves until Stop is called. It fails if another server runs in this
// process: CoreDNS is set up by state of the process.
func Start(c ServerConfig) (*Server, error) {
	serving.Lock()
	if serving.index != nil {
		serving.Unlock()
		return nil, errors.New("start DNS server: one runs in this process already")
	}
	if err := register(); err != nil {
		serving.Unlock()
		return nil, err
	}
	loop := &loopGuard{}
	serving.index, serving.loop, serving.corefile, serving.log = c.Index, loop, c.input, c.Log
	input, err := serving.input()
	serving.Unlock()
	// CoreDNS logs through the standard library's logger.
	log.SetFlags(0)
	log.SetOutput(&lines{log: c.Log})
	if err != nil {
		release()
		return nil, err
	}
	instance, err := caddy.Start(input)
	if err != nil {
		err = errors.Join(err, stopFresh())
		release()
		return nil, fmt.Errorf("start DNS server: %w", err)
	}
	return &Server{instance: instance, loop: loop, log: c.Log}, nil
}

func (c *ServerConfig) input() (caddy.Input, error) {
	text, path := []byte(c.Corefile), "generated Corefile"
	if c.Corefile == "" {
		var err error
		if text, err = os.ReadFile(c.Path); err != nil {
			return nil, fmt.Errorf("read Corefile: %w", err)
		}
		text, path = bindLocally(text, c.Local), c.Path
	}
	return caddy.CaddyfileInput{Contents: text, Filepath: path, ServerTypeName: "dns"}, nil
}

// bindLocally puts local addresses in the place of others in a Corefile's lines
// that say where to listen.
func bindLocally(corefile []byte, local map[netip.Addr]netip.Addr) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(corefile) {
		fields := strings.Fields(string(line))
		if len(fields) == 0 || fields[0] != "bind" {
			b.Write(line)
			continue
		}
		for i, f := range fields {
			if a, err := netip.ParseAddr(f); err == nil && local[a].IsValid() {
				fields[i] = local[a].String()
			}
		}
		b.WriteString(strings.Join(fields, " ") + "\n")
	}
	return b.Bytes()
}

func release() {
	serving.Lock()
	defer serving.Unlock()
	serving.index, serving.loop, serving.corefile = nil, nil, nil
}

// Stop ends the server; questions under way are answered.
func (s *Server) Stop() error {
	defer release()
	instance := s.instance
	if all := caddy.Instances(); len(all) > 0 { // the reload plugin replaces it
		instance = all[len(all)-1]
	}
	errs := instance.ShutdownCallbacks()
	if err := instance.Stop(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop DNS server: %w", err)
	}
	return nil
}

// lines passes what CoreDNS logs on, with its level.
type lines struct{ log *slog.Logger }

func (l *lines) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	level := slog.LevelInfo
	for prefix, is := range map[string]slog.Level{
		"[DEBUG] ": slog.LevelDebug, "[INFO] ": slog.LevelInfo, "[WARNING] ": slog.LevelWarn,
		"[ERROR] ": slog.LevelError, "[PANIC] ": slog.LevelError, "[FATAL] ": slog.LevelError,
	} {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			text, level = rest, is
			break
		}
	}
	l.log.Log(context.Background(), level, text, "part", "dns")
	return len(p), nil
}
