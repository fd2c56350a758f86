package ebpf

import (
	"github.com/fairway-net/fairway/dataplane/ebpf/packet"
	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
)

// Traces reports whether programs may be there that this mode left, as far as a process
// sees that has no right to open them. Of a program by tcx it can't tell whose it is.
func Traces() bool { return packet.Traces() }

// Ahead names programs of others that see packets at this node's interfaces before ours. What
// they let pass or drop isn't served.
func Ahead() ([]string, error) {
	dir, err := pins.NodeDir()
	if err != nil {
		return nil, err
	}
	return packet.Ahead(dir)
}
