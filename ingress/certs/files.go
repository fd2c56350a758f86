package certs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// source is where a flag says that certificates are.
type source struct {
	host string // that the flag names; "" takes those of the certificate
	one  pair
	dir  string // with many pairs; "" if there is one
}

// pair is a certificate's file and its key's.
type pair struct {
	cert, key string
	listed    bool // in a directory, rather than named
}

func readSource(text string) (source, error) {
	var s source
	files := text
	if host, rest, named := strings.Cut(text, "="); named {
		s.host, files = strings.ToLower(host), rest
		if s.host == "" {
			return s, fmt.Errorf("%q: a host must be before the =", text)
		}
	}
	cert, key, isPair := strings.Cut(files, ",")
	switch {
	case isPair && cert != "" && key != "":
		s.one = pair{cert: cert, key: key}
	case isPair || files == "" || s.host != "":
		return s, fmt.Errorf("%q: must be HOST=CERTIFICATE,KEY or CERTIFICATE,KEY or a directory", text)
	default:
		s.dir = files
	}
	return s, nil
}

// pairs lists what is there. In a directory: NAME.crt or NAME.pem with NAME.key, and
// fullchain.pem with privkey.pem in directories below, as certbot has them.
func (s *source) pairs() ([]pair, error) {
	if s.dir == "" {
		return []pair{s.one}, nil
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list certificates: %w", err)
	}
	var list []pair
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		p := pair{cert: filepath.Join(path, "fullchain.pem"), key: filepath.Join(path, "privkey.pem"), listed: true}
		if name, isKey := strings.CutSuffix(path, ".key"); isKey {
			if p = (pair{cert: name + ".crt", key: path, listed: true}); !exists(p.cert) {
				p.cert = name + ".pem"
			}
		}
		if exists(p.cert) && exists(p.key) {
			list = append(list, p)
		}
	}
	return list, nil
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// stamp changes when the files do. Links are followed, as those that Kubernetes
// and certbot replace.
func (p *pair) stamp() string {
	var b strings.Builder
	for _, path := range []string{p.cert, p.key} {
		info, err := os.Stat(path)
		if err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		real, _ := filepath.EvalSymlinks(path) // "" if it went meanwhile, and then it is seen next time
		fmt.Fprintln(&b, real, info.Size(), info.ModTime().UnixNano())
	}
	return b.String()
}
