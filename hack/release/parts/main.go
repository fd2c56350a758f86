// Command parts makes those parts of a release that no ordinary tool makes: container images without a
// container engine, lists of parts in SPDX, a statement of provenance, and the manifest of a kubectl plugin.
// It is for hack/release/build, and tells no time but the one it is given, so that the same commit gives the same bytes.
//
//	main.go        what is asked for
//	oci.go         an OCI image layout, for several architectures
//	programs.go    iptables and modprobe out of unpacked Debian packages
//	rpm.go         an RPM package
//	spdx.go        a list of parts from what a Go binary says of itself
//	provenance.go  which commit, which program and which Go made the files
//	krew.go        the manifest of `kubectl fairway`
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

const usage = `usage: parts oci VERSION COMMIT FILE ARCHITECTURE=FOLDER...
       parts programs ROOT FOLDER
       parts rpm VERSION ARCHITECTURE ROOT SCRIPTS FOLDER
       parts spdx BINARY VERSION FILE
       parts provenance VERSION COMMIT FOLDER
       parts krew VERSION FOLDER`

// release is of which all parts are.
type release struct {
	version string
	time    time.Time // the commit's
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "parts:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
	}
	r := release{time: time.Unix(seconds, 0).UTC()}
	switch {
	case len(args) >= 5 && args[0] == "oci":
		r.version = args[1]
		return r.writeImages(args[2], args[3], args[4:])
	case len(args) == 3 && args[0] == "programs":
		return copyPrograms(args[1], args[2])
	case len(args) == 6 && args[0] == "rpm":
		r.version = args[1]
		return r.writeRPM(args[3], args[2], args[4], args[5])
	case len(args) == 4 && args[0] == "spdx":
		r.version = args[2]
		return r.writeSPDX(args[1], args[3])
	case len(args) == 4 && args[0] == "provenance":
		r.version = args[1]
		return r.writeProvenance(args[2], args[3])
	case len(args) == 3 && args[0] == "krew":
		r.version = args[1]
		return r.writeKrew(args[2])
	}
	return errors.New(usage)
}
