package iptables

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

// Generation is how often the nf_tables of this network namespace have been changed,
// whoever did it and in whichever family: each transaction adds one (NFT_MSG_GETGEN,
// linux/netfilter/nf_tables.h). It is never 0 but with the legacy variant, whose
// tables nobody counts the changes of.
func (t *Tool) Generation() (generation uint32, err error) {
	if t.variant == Legacy {
		return 0, nil
	}
	s, err := openSocket(IPv4)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.send(unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, nil); err != nil {
		return 0, err
	}
	err = s.receive(func(a nlmsg.Attributes) { generation = a.Uint32(unix.NFTA_GEN_ID) })
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of nf_tables: %w", err)
	}
	return generation, nil
}
