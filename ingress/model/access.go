package model

import (
	"net/netip"
	"time"
)

// Access is what an engine tells of a request once it is over.
type Access struct {
	Time               time.Time
	Took               time.Duration
	Client             netip.Addr
	Method             string
	Host               string
	Path               string
	Query              string // as the client sent it, without the question mark
	Protocol           string
	Status             int
	Bytes              int64
	Socket             string // "namespace/gateway:port"
	Route              string // "" if none matched, or if the engine can't say
	Rule               string
	Endpoint           string // "" if none was asked
	Referer, UserAgent string // as the client says
	Trace              string // that a collector is told of; "" if none is

	Unlogged bool   // the rule wants it in no log
	Reason   string // why the gateway answered itself
}
