package check

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// Target is whom to ask, and what.
type Target struct {
	Addr netip.AddrPort // icmp and exec ignore the port
	Spec *Spec
	// Own says that the check is of this machine's own making (a file that its
	// administrator wrote). Only such a check may reach loopback and link-local
	// addresses, or run a command.
	Own bool
	// Tenant is whose place the check takes.
	Tenant Tenant
}

// Probe asks a target once. The error says that this machine couldn't ask, and
// so that nothing is known.
func Probe(ctx context.Context, t Target) (Result, error) {
	if !t.Own {
		if !t.Spec.Remote() {
			return Result{}, errors.New(string(t.Spec.Kind) + " checks come from files of the machine itself only")
		}
		if err := Allowed(t.Addr.Addr()); err != nil {
			return Result{}, err
		}
	}
	deadline := time.Now().Add(t.Spec.Timeout)
	var err error
	switch t.Spec.Kind {
	case HTTP:
		err = askStream(t, deadline, askHTTP)
	case HTTPS:
		err = askStream(t, deadline, overTLS(askHTTP))
	case TCP:
		err = askStream(t, deadline, nil)
	case TLS:
		err = askStream(t, deadline, overTLS(nil))
	case GRPC:
		err = askGRPC(ctx, t, deadline)
	case UDP:
		err = askUDP(t, deadline)
	case ICMP:
		err = askICMP(t, deadline)
	case Exec:
		err = askCommand(ctx, t.Spec, deadline)
	case Unit:
		err = askUnit(ctx, t.Spec, deadline)
	default:
		return Result{}, errors.New("no such kind of check: " + string(t.Spec.Kind))
	}
	var unexpected unexpectedError
	var stopped stoppedError
	switch {
	case err == nil:
		return good, nil
	case errors.As(err, &unexpected):
		return wrong(string(unexpected)), nil
	case errors.As(err, &stopped):
		return Result{Outcome: Refused, Reason: string(stopped)}, nil
	case local(err):
		return Result{}, err
	}
	return failed(err), nil
}

// unexpectedError is an answer that is not the expected one.
type unexpectedError string

func (e unexpectedError) Error() string { return string(e) }

// conversation is what is said on a connection.
type conversation func(t Target, c net.Conn) error

// host is what the server is told that it is called.
func (t Target) host() string {
	if t.Spec.Host != "" {
		return t.Spec.Host
	}
	return t.Addr.String()
}
