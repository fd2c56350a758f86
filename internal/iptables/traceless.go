package iptables

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// traceless reports whether the kernel holds no chains of Services, of either variant.
// It looks without a program of iptables, which other containers may have had. Of the
// legacy variant it sees the tables only: if there is one, the answer is no.
func traceless() (bool, error) {
	for _, f := range Families() {
		for _, table := range []string{"nat", "filter", "mangle"} {
			if there, err := HasLegacyTable(f, table); there || err != nil {
				return false, err
			}
			chains, err := chainsOf(f, table)
			if kernel.IsMissing(err) {
				continue
			}
			if err != nil {
				return false, err
			}
			for _, c := range chains {
				if strings.HasPrefix(c.Name, "KUBE-") {
					return false, nil
				}
			}
		}
	}
	return true, nil
}

// chainsOf lists the chains of a table of the nft variant.
func chainsOf(f Family, table string) (chains []*Chain, err error) {
	s, err := openSocket(f)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	chains, err = s.chains(table)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) { // nobody serves this subsystem or family
		return nil, &kernel.MissingError{What: "nf_tables", Err: err}
	}
	return chains, err
}
