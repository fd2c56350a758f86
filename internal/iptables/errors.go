package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
)

// RestoreError is what iptables-restore or -save answered.
type RestoreError struct {
	Program string
	Line    int    // of the input, from 1; 0 if it named none
	Text    string // that line
	Answer  string // what the program printed
	Err     error  // how it ended
}

// Error quotes the line that was refused.
func (e *RestoreError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s: %v", e.Program, e.Answer, e.Err)
	}
	return fmt.Sprintf("%s: line %d %q: %s: %v", e.Program, e.Line, e.Text, e.Answer, e.Err)
}

// Unwrap gives the way the program ended.
func (e *RestoreError) Unwrap() error { return e.Err }

var failedLine = regexp.MustCompile(`\bline:? (\d+)`)

// explain makes an error of what a program printed: a kernel.MissingError if
// the machine lacks something, else a RestoreError.
func (t *Tool) explain(program string, input, stderr []byte, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("run %s: %w", program, err)
	}
	if errors.Is(err, exec.ErrNotFound) {
		return &kernel.MissingError{What: fmt.Sprintf("the program %s of the %s variant (package iptables)", program, t.variant), Err: err}
	}
	failed := &RestoreError{Program: program, Answer: answer(stderr), Err: err}
	if m := failedLine.FindSubmatch(stderr); m != nil {
		if n, atoiErr := strconv.Atoi(string(m[1])); atoiErr == nil {
			failed.Line, failed.Text = n, lineOf(input, n)
		}
	}
	if what := t.missing(string(stderr)); what != "" {
		if what == netAdmin {
			return &kernel.MissingError{What: what, Err: errors.Join(failed, fs.ErrPermission)}
		}
		return &kernel.MissingError{What: what, Err: failed}
	}
	return failed
}

// answer is what a program printed on one line, without the advice to read
// its help.
func answer(stderr []byte) string {
	var lines []string
	for _, line := range strings.Split(string(stderr), "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "Try `") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

func lineOf(input []byte, n int) string {
	lines := bytes.Split(input, []byte("\n"))
	if n < 1 || n > len(lines) {
		return ""
	}
	return string(lines[n-1])
}

var (
	missingExtension = regexp.MustCompile(`Extension (\S+) revision \d+ not supported`)
	missingMatch     = regexp.MustCompile("Couldn't load (match|target) `([^']+)'")
	missingTable     = regexp.MustCompile("can't initialize ip6?tables table `([^']+)'")
)

// netAdmin is the right that iptables takes.
const netAdmin = "CAP_NET_ADMIN"

// missing names what the machine lacks according to a program's words; "" if
// they don't speak of that.
func (t *Tool) missing(words string) string {
	switch {
	case strings.Contains(words, "Permission denied"), strings.Contains(words, "Operation not permitted"), strings.Contains(words, "must be root"):
		return netAdmin
	case missingExtension.MatchString(words):
		return "the netfilter extension " + missingExtension.FindStringSubmatch(words)[1]
	case missingMatch.MatchString(words):
		m := missingMatch.FindStringSubmatch(words)
		return "the iptables " + m[1] + " " + m[2]
	case missingTable.MatchString(words):
		return "the iptables table " + missingTable.FindStringSubmatch(words)[1] + " (kernel modules ip_tables, iptable_" + missingTable.FindStringSubmatch(words)[1] + ")"
	case t.variant == NFT && (strings.Contains(words, "Protocol not supported") || strings.Contains(words, "Operation not supported")):
		return "nf_tables"
	}
	return ""
}
