package check

import (
	"context"
	"errors"
	"os"
	"syscall"
)

// Outcome is what one answer says.
type Outcome uint8

// The outcomes. Refused counts at once, since a machine that lives has said that
// nobody listens; Wrong counts when it repeats; Silent after two intervals.
const (
	Passed Outcome = iota
	Refused
	Silent
	Wrong
)

func (o Outcome) String() string { return [...]string{"passed", "refused", "silent", "wrong"}[o] }

// Result is the outcome of one question. Reason is for people, and never has
// anything of what the endpoint answered but its status code.
type Result struct {
	Outcome Outcome
	Reason  string
}

// good is the result of an endpoint that answers as it should.
var good = Result{Outcome: Passed, Reason: "answers"}

func wrong(reason string) Result { return Result{Outcome: Wrong, Reason: reason} }

// failed is the result of a question that ended in an error.
func failed(err error) Result {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Result{Outcome: Refused, Reason: "connection refused"}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return Result{Outcome: Silent, Reason: "no answer in time"}
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return Result{Outcome: Silent, Reason: "no route, or the machine doesn't answer"}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return wrong("connection reset")
	}
	return wrong("no valid answer")
}

// local reports whether an error is of this machine, such as too many open
// files: it says nothing about the endpoint.
func local(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EPERM, syscall.EACCES, os.ErrNoDeadline} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
