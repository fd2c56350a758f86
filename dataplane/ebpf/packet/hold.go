package packet

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// portHold is how long a port is held if nothing comes of the change of planes, in seconds.
const portHold = 60

// holdPorts tells netfilter by which ports backends know the connections whose
// translation it doesn't see. It translates new ones as soon as the programs, or those of
// sockets, let it, and would give them the same ports: their first packets would reach the
// backend as part of the others, and end these.
func (t *connTable) holdPorts() error {
	all, err := t.translations()
	for _, one := range all {
		holdErr := one.holdPort()
		if noConntrack(holdErr) {
			break
		}
		if holdErr != nil {
			return fmt.Errorf("hold port of connection %s > %s: %w", one.client, one.frontend, holdErr)
		}
	}
	return err
}

// hidden reports whether netfilter doesn't see by which port the backend knows a
// connection: the programs come after it on the way out, where they translate what the
// node's own sockets send, and masquerade. Of one that is about to be made, nobody knows.
func (t translation) hidden() bool { return !t.unnamed && (t.own || t.source != t.between) }

// holdPort has netfilter take the connection for one that goes from that port to the
// backend directly, until forget. No packet of it meets netfilter like that.
func (t translation) holdPort() error {
	if !t.hidden() {
		return nil
	}
	direct := translation{proto: t.proto, client: t.source, source: t.source, frontend: t.backend, backend: t.backend, idle: portHold}.flow()
	if err := direct.Insert(); !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil // somebody has it already, and is there first
}
