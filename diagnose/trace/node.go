package trace

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/diagnose/probe"
	"github.com/fairway-net/fairway/internal/drops"
	"github.com/fairway-net/fairway/internal/nftrace"
	"github.com/fairway-net/fairway/model"
)

// Longest is the longest time that a trace takes.
const Longest = 10 * time.Minute

// mostFlows bounds what one request follows.
const mostFlows = 64

// Request asks a node for its part of a trace: to follow packets through its rules, to
// tell what its kernel drops, and to make the connection. What a node has in the kernel
// for it ends with the request, with the process, and after For at the latest.
type Request struct {
	Flows []nftrace.Flow `json:"flows"`
	// Replies says that answers are followed too; see nftrace.Open.
	Replies bool `json:"replies,omitempty"`
	// Port is that of either end of packets whose drops are told; 0 tells of none.
	Port uint16 `json:"port,omitempty"`
	// Send is a connection to make; nil makes none.
	Send *Send         `json:"send,omitempty"`
	For  time.Duration `json:"for,omitempty"` // Longest is the longest, and the default
}

// Send is a connection.
type Send struct {
	From    netip.Addr     `json:"from,omitzero"` // a pod's; none is the node itself
	Port    uint16         `json:"port"`          // of the source
	Proto   model.Protocol `json:"proto"`
	To      netip.AddrPort `json:"to"`
	Timeout time.Duration  `json:"timeout"`
}

// Line is what is told. One of its fields is set.
type Line struct {
	Began  bool        `json:"began,omitempty"` // what happens from now on is told
	Event  *Event      `json:"event,omitempty"`
	Drop   *drops.Drop `json:"drop,omitempty"`
	Result *NodeResult `json:"result,omitempty"` // of the connection that was made
	Note   string      `json:"note,omitempty"`   // what is missing
	Error  string      `json:"error,omitempty"`
}

// Event is a step of a packet, with the names that only the node knows.
type Event struct {
	nftrace.Event
	InName  string        `json:"inName,omitempty"`
	OutName string        `json:"outName,omitempty"`
	Text    string        `json:"text,omitempty"` // the rule in words
	Base    *nftrace.Base `json:"base,omitempty"` // of its chain, if it is a base chain
	Problem string        `json:"problem,omitempty"`
}

// NodeResult is how the connection that was made has ended.
type NodeResult struct {
	Client  netip.AddrPort `json:"client"`
	Refused bool           `json:"refused,omitempty"`
	Silent  bool           `json:"silent,omitempty"` // nothing came back in time
	Error   string         `json:"error,omitempty"`  // what else happened
	Took    time.Duration  `json:"took"`
}

// Failed is the error that the result stands for; nil if the connection was answered.
func (r *NodeResult) Failed() error {
	switch {
	case r.Refused:
		return syscall.ECONNREFUSED
	case r.Silent:
		return probe.ErrNoAnswer
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

// Validate refuses what can't be followed.
func (r *Request) Validate() error {
	switch {
	case len(r.Flows) == 0:
		return errors.New("flows: not given")
	case len(r.Flows) > mostFlows:
		return fmt.Errorf("flows: %d are too many, %d at most", len(r.Flows), mostFlows)
	case r.For < 0 || r.For > Longest:
		return fmt.Errorf("for: %s must be at most %s", r.For, Longest)
	case r.Send != nil && (r.Send.Port == 0 || !r.Send.To.IsValid() || r.Send.Timeout <= 0 || r.Send.Timeout > Longest):
		return errors.New("send: needs a port, an address to connect to, and a timeout")
	}
	for _, f := range r.Flows {
		if !f.Frontend.Addr().IsValid() {
			return errors.New("flows: frontend: not given")
		}
	}
	return nil
}
