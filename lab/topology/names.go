package topology

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"

	"golang.org/x/sys/unix"
)

const (
	// PodInterfacePrefix starts the name of every pod's interface on its node.
	PodInterfacePrefix = "pod"
	// NodeInterface is the interface of nodes and clients on the underlay.
	NodeInterface = "eth0"

	underlayName = "underlay"
	podInfix     = "pod"
)

// label is a DNS label (RFC 1123), and so has no dot: the dots in namespace
// names keep lab "a" from being a prefix of lab "a-b".
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// CheckName says whether a lab can have the name.
func CheckName(name string) error { return checkLabel("lab name", name) }

func checkLabel(what, name string) error {
	if !label.MatchString(name) {
		return fmt.Errorf("%s %q: must be 1 to 63 lower-case letters, digits and hyphens, and start and end with a letter or digit", what, name)
	}
	return nil
}

// prefix starts the name of every namespace of the lab.
func prefix(lab string) string { return "fairway." + lab + "." }

// HostNamespace names the network namespace of a node or client of a lab.
func HostNamespace(lab, host string) string { return prefix(lab) + host }

// PodNamespace names the network namespace of a pod of a lab. Names that are
// too long for a file end in a hash.
func PodNamespace(lab, pod string) string {
	name := prefix(lab) + podInfix + "." + pod
	if len(name) <= unix.NAME_MAX {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:unix.NAME_MAX-17] + "." + hex.EncodeToString(sum[:8])
}
