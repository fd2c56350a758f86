// Package kubectlwords keeps kubectl's translations from being read where they aren't wanted.
// A package of kubectl's asks for one as the process starts, for which all are read, packed and
// unpacked: a quarter of what it takes to start any command. This package has to be
// initialised before that one, as it is where the two depend on nothing else of the same: Go
// initialises packages in the order of their paths.
package kubectlwords

import (
	"os"
	"slices"
	"strings"

	"k8s.io/kubectl/pkg/util/i18n"
)

func init() { //nolint:gochecknoinits // nothing later is early enough
	if slices.ContainsFunc(os.Args, func(arg string) bool { return strings.Contains(arg, "kubectl") }) {
		return // it speaks the user's language
	}
	// The error says that they were read already, which costs time and nothing else.
	_ = i18n.SetLoadTranslationsFunc(func() error { return nil })
}
