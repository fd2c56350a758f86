package maps

import (
	"fmt"
	"net/netip"

	"github.com/fairway-net/fairway/dataplane/ebpf/program"
)

// maxRanges is how many reserved prefixes the programs compare addresses with
// (RANGES of bpf/types.h). When there are more, they look into the trie.
const maxRanges = 4

// SetRanges tells the programs the reserved prefixes, beside the trie.
func (s *Store) SetRanges(reserved []netip.Prefix) error {
	if err := s.Maps["ranges"].Put(uint32(0), rangesValue(reserved)); err != nil {
		return fmt.Errorf("write map ranges: %w", err)
	}
	return nil
}

// rangesValue is struct ranges of bpf/types.h.
func rangesValue(reserved []netip.Prefix) []byte {
	b := make(program.Packer, 4+maxRanges*32)
	if len(reserved) > maxRanges {
		return b
	}
	list := b[:0].U32(uint32(1 + len(reserved)))
	for _, p := range reserved {
		bits := p.Bits()
		if p.Addr().Is4() {
			bits += 96
		}
		list = list.Addr(p.Masked().Addr())
		for i := range 16 {
			list = append(list, byte(uint16(0xff00)>>min(8, max(0, bits-8*i))))
		}
	}
	return b
}
