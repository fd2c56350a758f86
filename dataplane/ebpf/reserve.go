package ebpf

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// reservedFor is how long a port is reserved if nothing comes of the handover, in seconds.
const reservedFor = 60

// reservePorts tells netfilter by which ports backends know the connections whose
// translation it doesn't see. It translates new ones as soon as the programs, or those of
// sockets, let it, and would give them the same ports: their first packets would reach the
// backend as part of the others, and end these.
func reservePorts(dir string) error {
	conns, err := openGrown(dir, connsMap)
	if err != nil || conns == nil {
		return err
	}
	all, err := (&connTable{m: conns}).translations()
	for _, one := range all {
		reserveErr := one.reserve()
		if noConntrack(reserveErr) {
			break
		}
		if reserveErr != nil {
			err = fmt.Errorf("reserve port of connection %s > %s: %w", one.client, one.frontend, reserveErr)
			break
		}
	}
	return errors.Join(err, conns.close())
}

// hidden reports whether netfilter doesn't see by which port the backend knows a
// connection: the programs come after it on the way out, where they translate what the
// node's own sockets send, and masquerade. Of one that is about to be made, nobody knows.
func (t translation) hidden() bool { return !t.unnamed && (t.own || t.source != t.between) }

// reserve has netfilter take the connection for one that goes from that port to the
// backend directly, until forget. No packet of it meets netfilter like that.
func (t translation) reserve() error {
	if !t.hidden() {
		return nil
	}
	direct := translation{proto: t.proto, client: t.source, source: t.source, frontend: t.backend, backend: t.backend, idle: reservedFor}
	if err := direct.create(); !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil // somebody has it already, and is there first
}
