// Package tuning sets kernel-wide settings that a proxy depends on: the size and
// the timeouts of connection tracking, and the OOM score of this process. It also
// sets how much garbage this process lets accumulate.
package tuning

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Conntrack are settings of connection tracking
// (Documentation/networking/nf_conntrack-sysctl.rst). Zero values leave them as
// they are.
type Conntrack struct {
	Max            int // nf_conntrack_max; it is only ever raised
	TCPEstablished time.Duration
	TCPCloseWait   time.Duration
	TCPBeLiberal   bool
	UDP, UDPStream time.Duration
}

// root is the directory that /proc and /sys are below.
type root string

// ReadOnlyError says that a setting can't be written in this container or
// namespace. The node works without it, less well.
type ReadOnlyError struct {
	Setting   string
	Was, Want int
	Err       error
}

// Error names the setting, its value, and what it should be.
func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("%s is %d and can't be made %d: %v", e.Setting, e.Was, e.Want, e.Err)
}

// Unwrap gives what the kernel answered.
func (e *ReadOnlyError) Unwrap() error { return e.Err }

// Apply makes the settings, all that it can. The errors that it joins are
// ReadOnlyErrors where the file system or the namespace forbids writing.
func (c Conntrack) Apply() error { return c.apply("/") }

func (c Conntrack) apply(r root) error {
	var failed []error
	set := func(name string, value int, raise bool) {
		if value > 0 {
			failed = append(failed, r.set("proc/sys/net/netfilter/"+name, value, raise))
		}
	}
	set("nf_conntrack_max", c.Max, true)
	if c.Max > 0 {
		// Four entries to a bucket, as kube-proxy has it.
		failed = append(failed, r.set("sys/module/nf_conntrack/parameters/hashsize", c.Max/4, true))
	}
	set("nf_conntrack_tcp_timeout_established", int(c.TCPEstablished.Seconds()), false)
	set("nf_conntrack_tcp_timeout_close_wait", int(c.TCPCloseWait.Seconds()), false)
	set("nf_conntrack_udp_timeout", int(c.UDP.Seconds()), false)
	set("nf_conntrack_udp_timeout_stream", int(c.UDPStream.Seconds()), false)
	if c.TCPBeLiberal {
		set("nf_conntrack_tcp_be_liberal", 1, false)
	}
	return errors.Join(failed...)
}

// set writes a setting unless it has the value, or, to be raised, a higher one.
func (r root) set(path string, value int, raise bool) error {
	file := filepath.Join(string(r), path)
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	was, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if was == value || raise && was > value {
		return nil
	}
	err = os.WriteFile(file, []byte(strconv.Itoa(value)), 0)
	switch {
	case errors.Is(err, unix.EROFS), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EOPNOTSUPP):
		// EOPNOTSUPP: the table's size belongs to the first namespace (nf_conntrack_set_hashsize).
		return &ReadOnlyError{Setting: path, Was: was, Want: value, Err: err}
	case err != nil:
		return fmt.Errorf("set %s to %d: %w", path, value, err)
	}
	return nil
}

// criticalPod is the score that the kubelet gives to containers of node-critical pods,
// which have no right to a lower one.
const criticalPod = -997

// SetOOMScore tells the kernel how gladly to kill this process when memory runs
// out: from -1000, never, to 1000 (proc(5), oom_score_adj).
func SetOOMScore(score int) error {
	const file = "/proc/self/oom_score_adj"
	if err := os.WriteFile(file, []byte(strconv.Itoa(score)), 0); err != nil {
		if text, _ := os.ReadFile(file); errors.Is(err, fs.ErrPermission) {
			if was, bad := strconv.Atoi(strings.TrimSpace(string(text))); bad == nil && was <= criticalPod {
				return nil
			}
		}
		return fmt.Errorf("set oom_score_adj to %d: %w", score, err)
	}
	return nil
}
