package ebpf

import "github.com/fairway-net/fairway/dataplane/ebpf/packet"

// Traces reports whether programs may be there that this mode left, as far as a process
// sees that has no right to open them. Of a program by tcx it can't tell whose it is.
func Traces() bool { return packet.Traces() }
