// Package certs keeps certificates that are in files of an engine's machine. Files
// that change are read again; one that becomes bad leaves the last good certificate
// in use.
//
//	certs.go  which certificates there are, and for which hosts
//	files.go  where they are, and reading them
package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// look is how often files are looked at.
const look = 2 * time.Second

// Files are certificates in files.
type Files struct {
	sources []source
	log     *slog.Logger

	mu    sync.Mutex
	pairs map[pair]*loaded
}

// loaded is what is known of a pair of files.
type loaded struct {
	stamp string // of both files, as they were when last read
	hosts []string
	cert  *tls.Certificate // the last good one; nil if there was none
}

// New reads certificates. Each source is HOST=CERTIFICATE,KEY, or CERTIFICATE,KEY
// for the hosts that the certificate names, or a directory of such pairs. A HOST of
// * is for all hosts that no other certificate is for.
func New(sources []string, log *slog.Logger) (*Files, error) {
	f := &Files{log: log, pairs: map[pair]*loaded{}}
	for _, text := range sources {
		s, err := readSource(text)
		if err != nil {
			return nil, err
		}
		f.sources = append(f.sources, s)
	}
	if err := f.read(true); err != nil {
		return nil, err
	}
	return f, nil
}

// Watch calls changed whenever certificates are others, until ctx is done.
func (f *Files) Watch(ctx context.Context, changed func()) {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if f.Read() {
				changed()
			}
		}
	}
}

// Read looks at the files, and reports whether certificates are others.
func (f *Files) Read() bool {
	before := f.all()
	_ = f.read(false) // what is wrong is logged
	return !slices.Equal(before, f.all())
}

// read takes in the files that have changed. What is wrong is an error at the
// start, where a flag names the files, and is logged otherwise.
func (f *Files) read(start bool) error {
	found := map[pair]string{} // host that the flag names
	for _, s := range f.sources {
		list, err := s.pairs()
		if err != nil {
			if start {
				return err
			}
			f.log.Error("certificates could not be looked for; those that are known stay in use", "error", err)
			return nil
		}
		for _, p := range list {
			found[p] = s.host
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, host := range found {
		if err := f.load(p, host); err != nil {
			if start && !p.listed {
				return err
			}
			f.log.Error("certificate could not be read; the last good one stays in use", "error", err)
		}
	}
	for p := range f.pairs {
		if _, still := found[p]; !still {
			delete(f.pairs, p)
		}
	}
	return nil
}

// load reads a pair if its files are others than when they were last read.
func (f *Files) load(p pair, host string) error {
	stamp := p.stamp()
	l := f.pairs[p]
	if l == nil {
		l = &loaded{}
		f.pairs[p] = l
	} else if l.stamp == stamp {
		return nil
	}
	l.stamp = stamp
	cert, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		return fmt.Errorf("read certificate %s and key %s: %w", p.cert, p.key, err)
	}
	l.cert, l.hosts = &cert, []string{host}
	if host == "" {
		l.hosts = nil
		for _, name := range cert.Leaf.DNSNames {
			l.hosts = append(l.hosts, strings.ToLower(name))
		}
	}
	return nil
}

// all are the certificates that are in use, in order.
func (f *Files) all() []*tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*tls.Certificate
	for _, p := range f.sorted() {
		out = append(out, f.pairs[p].cert)
	}
	return out
}

func (f *Files) sorted() []pair {
	list := make([]pair, 0, len(f.pairs))
	for p := range f.pairs {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b pair) int { return strings.Compare(filepath.Clean(a.cert), filepath.Clean(b.cert)) })
	return list
}

// Of lists the certificates for a hostname, which may be a wildcard, or "" for
// all: those for it alone first, and those for all hosts last.
func (f *Files) Of(hostname string) []*tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ranked [4][]*tls.Certificate
	for _, p := range f.sorted() {
		l := f.pairs[p]
		if l.cert == nil {
			continue
		}
		best := len(ranked)
		for _, h := range l.hosts {
			best = min(best, rank(h, hostname))
		}
		if best < len(ranked) {
			ranked[best] = append(ranked[best], l.cert)
		}
	}
	return slices.Concat(ranked[:]...)
}

// rank says how well a certificate's host suits a hostname; 4 if it doesn't.
func rank(host, hostname string) int {
	suffix, isWildcard := strings.CutPrefix(host, "*")
	switch {
	case host == hostname:
		return 0
	case host == "*":
		return 3
	case isWildcard && hostname != "" && coversOne(suffix, hostname):
		return 1
	case hostname == "" || strings.HasPrefix(hostname, "*") && model.Covers(hostname, host):
		return 2
	}
	return 4
}

// coversOne reports whether a wildcard's suffix is that of a hostname of one more
// label, as certificates mean it (RFC 9525, 6.3).
func coversOne(suffix, hostname string) bool {
	label, found := strings.CutSuffix(hostname, suffix)
	return found && label != "" && !strings.Contains(label, ".")
}
